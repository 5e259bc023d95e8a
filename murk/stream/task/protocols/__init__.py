"""The protocols: the block that each has in a task, what people release, and what is made of it."""
