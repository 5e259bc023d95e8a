"""Workers: feed the messages of a log to learners, every message exactly once."""
