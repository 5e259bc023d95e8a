"""The audit: what releases disclose about the record behind them, measured on the code that devices run.

For neighbouring records that a search over the task's public box found worst, releases are made as a device makes
them, a likelihood-ratio test tells them apart, and how well it does gives a lower bound of epsilon or mu that no
mechanism with a smaller one could reach (`bounds`). A bound above the claim refutes the claim.
"""

from murk.audit.bounds import EpsilonAt, Mu, Yardstick, lower_bound
from murk.audit.catalogue import cases_of, catalogue
from murk.audit.run import Finding, audit

__all__ = ["EpsilonAt", "Finding", "Mu", "Yardstick", "audit", "cases_of", "catalogue", "lower_bound"]
