"""Public-data GLM: learning from second moments that people release once, and from public covariates.

The estimators, which need River, are not imported here, so that devices start fast.
"""
