"""From the sums of released examples to coefficients with their intervals."""
