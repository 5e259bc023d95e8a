"""Models fitted to the releases of a log, beside its task's own."""
