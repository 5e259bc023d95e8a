"""Scores in epochs: people of an epoch read one published model, the learner keeps sums per epoch and solves.

No step, no radius, no staleness: the state is sums, so that order, delays and partitions do not matter.
"""
