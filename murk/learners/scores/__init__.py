"""Scores in epochs: all people of an epoch answer at one published model; the learner sums by epoch and solves.

There is no step size and no radius. The state is exact sums, so the order of an epoch's answers does not matter.
"""
