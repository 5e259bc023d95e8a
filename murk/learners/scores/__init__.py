"""Scores in epochs: all people of an epoch answer at one published model, and exact sums are solved."""
