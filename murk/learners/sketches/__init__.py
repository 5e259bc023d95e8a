"""GaussMix: learning from what organisations release: problems that they share with learners, and estimators.

Only the estimators need River: they are not imported here, so that a producer starts fast.
"""
