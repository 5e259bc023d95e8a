"""The order of test files, and which process takes which: files that wait run beside files that compute."""

# Files whose tests wait for servers and killed processes rather than compute, the longest first.
WAITING = (
    "services/test_compose",
    "services/test_faults",
    "services/",
    "soak/",
    "devices/test_browser",
    "cli/test_kill",
    "cli/test_crash_points",
)
# Those that compute for long. All others end soon after they begin, so that no process is left alone with much to do.
COMPUTING = (
    "reproduce/test_experiments",
    "tools/test_notebooks",
    "test_docs",
    "learners/test_river",
    "learners/models/",
    "stream/worker/test_crashes",
    "learners/planning/",
    "devices/",
    "cli/",
    "dossier/",
    "learners/iwp_sgd/test_outer",
    "privacy/noise/test_distribution",
    "learners/scores/",
    "stream/",
    "fuzz/",
    "learners/",
    "producers/",
    "monitoring/",
)
ORDER = WAITING + COMPUTING


def place(path):
    """Return how early a file's tests begin; its path is relative to this folder."""
    return next((at for at, start in enumerate(ORDER) if path.startswith(start)), len(ORDER))


def waits(path):
    """Return whether a file's tests wait rather than compute."""
    return place(path) < len(WAITING)


def takes_waiting(worker):
    """Return whether a process of a run, by its name (gw0, gw1, ...), takes files that wait while there are any."""
    return worker[-1] in "02468"


def take(queue, waiting):
    """Move the first file of the wanted kind to the front of an ordered dictionary, if there is one left."""
    wanted = next((path for path in queue if waits(path.removeprefix("tests/")) is waiting), None)
    if wanted is not None:
        queue.move_to_end(wanted, last=False)


def scheduler(config, log):
    """Return a scheduler of xdist by files: every other process takes files that wait while there are any.

    In their order alone, all processes would wait at first while the cores are idle, and compete for these later.
    """
    from xdist.scheduler import LoadFileScheduling

    class Turns(LoadFileScheduling):
        def _assign_work_unit(self, node):
            take(self.workqueue, takes_waiting(node.gateway.id))
            super()._assign_work_unit(node)

    return Turns(config, log)
