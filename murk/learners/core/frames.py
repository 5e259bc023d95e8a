"""Data frames of any library, as River sees them."""

from __future__ import annotations

from typing import Any

from river.utils import dataframe

from murk.errors import UserError


def frame_of(X: Any) -> Any:
    """A data frame of any library that River takes, as River sees it.

    Raises
    ------
    UserError
        If it is none, or has two columns of one name.
    """
    try:
        return dataframe.into_frame(X)
    except (TypeError, ValueError):
        # What the library says may quote names that are values.
        raise UserError(
            f"X is of the type {type(X).__name__}: give a data frame (pandas, Polars, Arrow) with columns of different "
            "names, or an array (n, k)"
        ) from None
