"""Releases without an end, as people send them who wait for what was learned from the last ones."""

import threading
from itertools import cycle, islice

from murk.stream import open_log
from murk.stream.log.interface import UnreachableError

PAUSE = 0.3
AT_ONCE = 3


class Feeder:
    """Sends a few releases to each partition of a log whose partition has learned the last ones; a context manager.

    They are the same ones again and again: those of a partition must be more than its window for duplicates holds.
    `PAUSE` is how many seconds are between them at least: with more of it, the rate says less of how busy the machine
    is, and as much of a learner that stands still.
    """

    def __init__(self, url, partitions):
        self._url = url
        self._closing = threading.Event()
        # One each: anyone who looks at a partition whose owner has died in a commit waits for the end of that.
        self._threads = [
            threading.Thread(target=self._run, args=(number, cycle(values)), daemon=True)
            for number, values in enumerate(partitions)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._closing.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number, values):
        with open_log(self._url, create=False) as log:
            while not self._closing.wait(PAUSE):
                try:
                    if log.checkpoint(number).offset == log.end(number):
                        log.append([(number, value) for value in islice(values, AT_ONCE)])
                except UnreachableError:
                    # The machine is so busy that the broker did not answer in time.
                    continue
