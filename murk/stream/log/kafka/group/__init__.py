"""The consumer group in which learners share the chains."""
