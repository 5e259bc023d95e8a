"""Settings of all tests."""

from hypothesis import settings

from tests.services.fixtures import *  # noqa: F403

# No test may depend on how fast the machine is; and a failure must come again when it is looked for.
settings.register_profile("murk", deadline=None, derandomize=True)
settings.load_profile("murk")
