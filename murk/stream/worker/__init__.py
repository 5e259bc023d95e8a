"""Workers: feed the messages of a log to learners, each exactly once."""
