"""Kinds of releases as compiled parsers and writers know them: the fields of their models, their types and bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from murk.stream.messages.releases import Release

LARGEST = 2**62 - 1
"""No coordinate of a release is larger."""

_BOUNDS = ("gt", "ge", "lt", "le")


def struct_of(model: type[Release], widest: int = LARGEST, **only: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a kind's fields in their order, but for their patterns.

    Parameters
    ----------
    model
        A kind whose payload is a list of integers.
    widest
        The largest size of one of them.
    only
        The texts that some fields may have.
    """
    types = {name: _typed(field.annotation, field.metadata) for name, field in model.model_fields.items()}
    # Looking for the largest of ten numbers takes Python as long as all the rest.
    limit = min(widest, LARGEST)
    types["payload"] = list[Annotated[int, msgspec.Meta(ge=-limit, le=limit)]]
    types.update({name: Literal[texts] for name, texts in only.items()})
    fields = [(model.model_fields[name].alias or name, one) for name, one in types.items()]
    # Releases hold no cycles: the garbage collector need not look at them.
    return msgspec.defstruct(model.__name__, fields, frozen=True, forbid_unknown_fields=True, gc=False)


def _typed(annotation: Any, constraints: Any) -> Any:
    """A field's type in the parser's own words."""
    bounds = {name: getattr(one, name) for one in constraints for name in _BOUNDS if hasattr(one, name)}
    return Annotated[annotation, msgspec.Meta(**bounds)] if bounds else annotation
