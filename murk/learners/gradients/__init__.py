"""Locally private stochastic gradient descent: the problem of devices and learners, and the estimators.

The estimators need River and are not imported here, so that a device starts fast.
"""
