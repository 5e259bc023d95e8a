"""Scores in epochs, in each of which people answer at one published model; exact sums by epoch are solved."""
