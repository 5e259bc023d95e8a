"""The demonstration: a real question, 254,654 real people, nobody's record seen."""

from importlib.resources import files
from pathlib import Path

TASK = Path(str(files(__name__))) / "third-child.yaml"
DATA = Path(str(files(__name__))) / "data" / "mothers-1980.csv.gz"
