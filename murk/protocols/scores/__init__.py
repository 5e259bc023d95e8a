"""Scores in epochs: the models, the answers and the solution that scores and moments share."""
