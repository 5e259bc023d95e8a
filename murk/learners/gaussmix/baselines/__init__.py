"""What GaussMix is compared with: pure functions of an organisation's records, each with its privacy statement.

All are central mechanisms under zero-out neighbours, as GaussMix is: the organisation sees its raw records. They are
for comparison: nothing of the pipe uses them.
"""

from murk.learners.gaussmix.baselines.adassp import AdaSSP
from murk.learners.gaussmix.baselines.common import Baseline
from murk.learners.gaussmix.baselines.objective import ObjectivePerturbation
from murk.learners.gaussmix.baselines.sheffet import Sheffet

__all__ = ["AdaSSP", "Baseline", "ObjectivePerturbation", "Sheffet"]
