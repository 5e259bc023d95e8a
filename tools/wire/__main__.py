"""Print the JSON Schema of every message, as one JSON object: ``python -m tools.wire``."""

import sys

from tools.wire.page import pretty
from tools.wire.schemas import schemas

sys.stdout.write(pretty(schemas()) + "\n")
