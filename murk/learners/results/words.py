"""What stands in the place of a number that says nothing; imported by commands before anything heavy is."""

from __future__ import annotations

from typing import Final

NOT_LEARNED: Final = "not learned"
TOO_WIDE: Final = "too wide"
