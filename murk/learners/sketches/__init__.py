"""GaussMix: the problem that organisations and learners share, the estimators, and what they are compared with.

Only the estimators need River: they are not imported here, so that a producer starts fast.
"""
