"""Words in place of a useless number; commands import them before anything heavy."""

from __future__ import annotations

from typing import Final

NOT_LEARNED: Final = "not learned"
TOO_WIDE: Final = "too wide"
