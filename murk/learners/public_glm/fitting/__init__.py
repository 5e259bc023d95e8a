"""From released moments to coefficients with their intervals: links and losses, equations, roots and bounds."""
