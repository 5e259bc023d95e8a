"""Settings of all tests."""

import signal

from hypothesis import settings

from tests.services.fixtures import *  # noqa: F403

# No test may depend on how fast the machine is; and a failure must come again when it is looked for.
settings.register_profile("murk", deadline=None, derandomize=True)
settings.load_profile("murk")

# A shell's background job ignores Ctrl-C, and so would every process that is started and stopped here.
signal.signal(signal.SIGINT, signal.default_int_handler)
