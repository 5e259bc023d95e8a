"""Small mistakes made on purpose, one at a time, to see whether the tests notice: ``make mutants``.

No tool of others does it here. mutmut replaces each function by a trampoline that chooses a variant when called, which
numba cannot compile, and leaves decorated functions alone; cosmic-ray changes the files that are being worked on, and
runs the same command for each mistake, where this project has ten minutes of tests and a few that matter to each line.
"""
