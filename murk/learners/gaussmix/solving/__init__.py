"""From released sketches and Gram matrices to coefficients with their intervals."""
