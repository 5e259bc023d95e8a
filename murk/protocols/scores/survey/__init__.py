"""Survey of the features' centres and spreads from one-bit answers, independent of any protocol."""
