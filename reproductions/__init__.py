"""The papers' tables and figures, reproduced as published, with errors corrected, and with Murk's defaults.

Each paper has a folder; ``python -m reproductions`` runs its experiments.
"""

from __future__ import annotations
