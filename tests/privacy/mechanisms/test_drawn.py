"""One of several private values: what describes its mechanism decides it."""

from murk.privacy import DrawnMechanism, KnownMechanism, PureDP, SubsetSelection


def test_the_description_tells_how_many_values_a_part_has() -> None:
    part = KnownMechanism(SubsetSelection.calibrate(PureDP(1.0), categories=2), cells=6)
    narrow, wide = (DrawnMechanism((part, part), width) for width in (1, 2))
    assert wide.to_dict() == {"kind": "drawn", "parts": [part.to_dict()] * 2, "width": 2}
    assert narrow.to_dict() != wide.to_dict()
