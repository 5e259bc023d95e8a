"""Hold a dashboard's JSON against Grafana's published schema, as its own foundation SDK states it in types.

The SDK's parsers are lenient: they drop keys they do not know and convert nothing. So what was parsed is walked
against the declared types, and what would be written again is compared with what was read.
"""

import enum
import json
import types
import typing
import warnings

with warnings.catch_warnings():
    # The SDK would rather have the second schema, which in Grafana 12 is a preview still.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import dashboard

plugins.register_default_plugins()


def problems(document):
    """Everything in a dashboard that the schema does not know or types otherwise."""
    parsed = dashboard.Dashboard.from_json(json.loads(json.dumps(document)))
    written = json.loads(JSONEncoder().encode(parsed))
    found = [f"{at}: not in the schema" for at in lost(document, written)]
    for panel, own in zip(flat(document["panels"]), flat(parsed.panels, vars), strict=True):
        if panel["type"] != "row" and isinstance(own.options, dict):
            found.append(f"{panel['title']}: no schema for {panel['type']!r}")
    return found + list(mistyped(parsed))


def flat(panels, keys=dict):
    """Panels, each row followed by those that are folded into it."""
    for panel in panels:
        yield panel
        yield from keys(panel).get("panels", [])


def lost(given, written, at="dashboard"):
    """Places that are in `given` and did not survive reading and writing."""
    if isinstance(given, dict) and isinstance(written, dict):
        for key, value in given.items():
            # A null is the absence of a value, and is not written.
            if key in written:
                yield from lost(value, written[key], f"{at}.{key}")
            elif value is not None:
                yield f"{at}.{key}"
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        for place, (one, other) in enumerate(zip(given, written, strict=True)):
            yield from lost(one, other, f"{at}[{place}]")
    elif given != written:
        yield at


def mistyped(value, at="dashboard"):
    """Places of a parsed object whose value is not of the declared type."""
    hints = typing.get_type_hints(type(value))
    for name, hint in hints.items():
        here = f"{at}.{name}"
        inside = getattr(value, name)
        if not fits(inside, hint):
            yield f"{here}: {inside!r} is not {hint}"
        yield from walk(inside, here)


def walk(value, at):
    if isinstance(value, list):
        for place, one in enumerate(value):
            yield from walk(one, f"{at}[{place}]")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from walk(one, f"{at}.{key}")
    elif type(value).__module__.startswith("grafana_foundation_sdk.models") and not isinstance(value, enum.Enum):
        yield from mistyped(value, at)


def fits(value, hint):
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint in (object, typing.Any):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, one) for one in inside)
    if origin is typing.Literal:
        return value in inside
    if origin is list:
        return isinstance(value, list) and all(fits(one, inside[0]) for one in value)
    if origin is dict:
        return isinstance(value, dict) and all(fits(k, inside[0]) and fits(v, inside[1]) for k, v in value.items())
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if isinstance(value, dict) and hasattr(hint, "from_json"):
        # The SDK leaves some lists of objects as they came.
        parsed = hint.from_json(value)
        return not [*mistyped(parsed), *lost(value, json.loads(JSONEncoder().encode(parsed)))]
    return isinstance(value, hint)
