"""The people or organisations of a file, who release its records: simulations, gateways and local runs."""
