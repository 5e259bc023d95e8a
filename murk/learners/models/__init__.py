"""Models fitted to the releases of a log, in addition to its task's own."""
