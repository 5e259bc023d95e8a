"""The demonstration: a research question and the census records of 254,654 people."""

from importlib.resources import files
from pathlib import Path

TASK = Path(str(files(__name__))) / "third-child.yaml"
DATA = Path(str(files(__name__))) / "data" / "mothers-1980.csv.gz"
