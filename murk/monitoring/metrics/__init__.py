"""The metrics that Murk exports, in one table, and who fills them in; alerts on them."""
