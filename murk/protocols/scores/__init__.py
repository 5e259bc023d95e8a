"""Scores in rounds: the models, the answers and the solution that scores and moments share."""
