"""The fit of a trusted server that sees the raw records, for comparison only; it never touches the run's log."""

from pathlib import Path

import numpy as np

from murk._internal.extras import missing_extra
from murk.populations.file_source import FileSource
from murk.task.task import Task


def trusted_fit(task: Task, source: Path) -> dict[str, dict[str, float]]:
    """Fit a maximum-likelihood logistic model to raw records, in coded units; raise UserError without statsmodels."""
    try:
        from statsmodels.api import Logit
    except ImportError as error:
        raise missing_extra("the comparison needs statsmodels", "demo") from error
    blocks = list(FileSource(source, task).blocks(0, 65_536))
    x, y = np.concatenate([b.x for b in blocks]), np.concatenate([b.y for b in blocks])
    fit = Logit(y, x).fit(disp=0)
    low, high = fit.conf_int(alpha=0.05).T
    return {
        name: {"value": float(fit.params[i]), "low": float(low[i]), "high": float(high[i])}
        for i, name in enumerate(task.coding.names)
    }
