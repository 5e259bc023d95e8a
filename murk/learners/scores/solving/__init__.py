"""From sums of answers to coefficients with their intervals: moments, curvature, equations, and what is needed."""
