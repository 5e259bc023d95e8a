"""Tools that all packages of Murk use: compiled kernels, SQLite files, locks, wiping, bounded reads."""
