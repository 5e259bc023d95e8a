"""The durable account of what people have spent, auditable alone: one SQLite file and all that writes to it."""
