"""The account of what people have spent: one SQLite file and everything that reads or writes it."""
