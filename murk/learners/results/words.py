"""Words that reports print where a number would say nothing. Kept apart, so that importing them is fast."""

from __future__ import annotations

from typing import Final

NOT_LEARNED: Final = "not learned"
TOO_WIDE: Final = "too wide"
