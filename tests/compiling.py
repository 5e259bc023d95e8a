"""Compiles what the tests run, once: ``python -m tests.compiling``. Otherwise every process of a first run does it."""

from pathlib import Path

import murk
from murk._internal.jit import source_stamp

PACKAGE = Path(murk.__file__).parent
DONE = PACKAGE / "__pycache__" / "compiled-for-tests"
"""Says of which sources kernels were compiled last; where they are kept, so that it goes with them."""


def main() -> None:
    stamp = source_stamp(PACKAGE)
    if DONE.is_file() and DONE.read_text() == stamp:
        return
    from tests.cli.forks import warmed
    from tests.learners.catalogue import compiled
    from tests.protocols import PROTOCOLS

    for protocol in PROTOCOLS:
        warmed(str(protocol))
    compiled()
    DONE.parent.mkdir(exist_ok=True)
    DONE.write_text(stamp)


if __name__ == "__main__":
    main()
