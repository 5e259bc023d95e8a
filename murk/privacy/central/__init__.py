"""Central mechanisms: an organisation releases a summary of a window. Accumulators are imported on first use."""

from typing import TYPE_CHECKING

from murk._internal.lazy import lazy_exports

if TYPE_CHECKING:
    from murk.privacy.central.accumulators import Gram as Gram
    from murk.privacy.central.accumulators import GramAccumulator as GramAccumulator
    from murk.privacy.central.accumulators import Newton as Newton
    from murk.privacy.central.accumulators import NewtonAccumulator as NewtonAccumulator
    from murk.privacy.central.accumulators import Sketch as Sketch
    from murk.privacy.central.accumulators import SketchAccumulator as SketchAccumulator
    from murk.privacy.central.gaussian_sketch import LARGEST_WINDOW as LARGEST_WINDOW
    from murk.privacy.central.gaussian_sketch import LEAST_SPREAD as LEAST_SPREAD
    from murk.privacy.central.gaussian_sketch import GaussMixMechanism as GaussMixMechanism
    from murk.privacy.central.gram_matrix import GramMechanism as GramMechanism
    from murk.privacy.central.newton_step import NewtonMechanism as NewtonMechanism
    from murk.privacy.central.sketch_renyi import Analysis as Analysis
    from murk.privacy.central.sketch_renyi import Method as Method
    from murk.privacy.central.sketch_renyi import Neighbours as Neighbours
    from murk.privacy.central.sketch_renyi import joint_settings as joint_settings
    from murk.privacy.central.sketch_renyi import mixing_epsilon as mixing_epsilon
    from murk.privacy.central.sketch_renyi import phi as phi
    from murk.privacy.central.sketch_renyi import smallest_threshold as smallest_threshold

__all__, __getattr__, __dir__ = lazy_exports(__name__)
