"""Scores in epochs: people of an epoch read one published model, the learner keeps sums per epoch and solves.

No step and no radius: the state is exact sums, so that the order of an epoch's answers does not matter.
"""
