"""Compiles what the tests run, once: ``python -m tests.compiling``. Otherwise every process of a first run does it."""

import tempfile
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
    forwarded()
    DONE.parent.mkdir(exist_ok=True)
    DONE.write_text(stamp)


def forwarded() -> None:
    """Compile what reads and writes many messages at once: of a shuffler, and of a broker's batches."""
    import numpy as np

    from murk.stream.log.kafka.connection.records import index
    from murk.stream.wire.duplicates import Unexpired
    from tests.kernels import compiled_at_once
    from tests.shuffler import crowds

    task = crowds.make_task(crowd=4)
    with compiled_at_once(), tempfile.TemporaryDirectory() as folder:
        with crowds.logs(Path(folder), task) as (input_log, log):
            input_log.append([(0, crowds.message(task, number)) for number in range(16)])
            assert crowds.drain(crowds.shuffler(Path(folder), input_log, log, task))
        ids, expires = np.array([[1, 2]], np.uint64), np.array([crowds.NOW])
        seen = Unexpired.of("log", 3600, 60)
        seen.add(ids, expires)
        assert seen.has(ids, expires).all()
        index(np.frombuffer(b"", np.uint8), 0)


if __name__ == "__main__":
    main()
