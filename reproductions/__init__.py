"""The papers' tables and figures made again: as published, corrected where a paper errs, and by Murk's defaults.

One folder a paper, one module a group of figures; `python -m reproductions` runs them.
"""

from __future__ import annotations
