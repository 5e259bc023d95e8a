"""Survey of the features' centres and spreads from one-bit answers, free of any protocol."""
