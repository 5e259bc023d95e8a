"""Locally private stochastic gradient descent: the problem that devices and learners share, and the estimators.

Only the estimators need River: they are not imported here, so that a device starts fast.
"""
