"""Locally private stochastic gradient descent; estimators, which need River, are not imported here."""
