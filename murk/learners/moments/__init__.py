"""Public-data GLM: private second moments, released once, and public unlabelled covariates.

The estimators, which need River, are not imported here, so that devices start fast.
"""
