"""What every room uses: compiled kernels, SQLite files, locks, wiping, bounded reads."""
