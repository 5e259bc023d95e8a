"""What a task file says about each protocol."""
