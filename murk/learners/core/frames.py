"""Data frames of any library, through River."""

from __future__ import annotations

from typing import Any

from river.utils import dataframe

from murk.errors import UserError


def frame_of(X: Any) -> Any:
    """Return a data frame of any library that River accepts, in River's own form.

    Raises UserError if it is none, or has two columns of one name.
    """
    try:
        return dataframe.into_frame(X)
    except (TypeError, ValueError):
        # The library's message may quote values.
        raise UserError(
            f"X is of the type {type(X).__name__}: give a data frame (pandas, Polars, Arrow) with columns of different "
            "names, or an array (n, k)"
        ) from None
