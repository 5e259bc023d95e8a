"""The audit: lower bounds on what releases disclose about a record, measured on the Python code of devices.

A search finds the worst neighbouring records of the task's public box. Their releases are made as on a device, and a
likelihood-ratio test distinguishes them. Its success gives a lower bound on epsilon or mu (`bounds`); a bound above the
claim refutes the claim.
"""

from murk.audit.bounds import EpsilonAt, Mu, TestedGuarantee, detectable, lower_bound
from murk.audit.catalogue import cases_of, catalogue
from murk.audit.run import Finding, audit, checksum

__all__ = [
    "EpsilonAt",
    "Finding",
    "Mu",
    "TestedGuarantee",
    "audit",
    "cases_of",
    "catalogue",
    "checksum",
    "detectable",
    "lower_bound",
]
