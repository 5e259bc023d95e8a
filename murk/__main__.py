"""``python -m murk``."""

from murk.cli import main

main()
