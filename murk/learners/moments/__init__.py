"""Public-data GLM: private second moments, released once, and public unlabelled covariates.

Only the estimators need River: they are not imported here, so that a device starts fast.
"""
