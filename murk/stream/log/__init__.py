"""Logs: ordered, partitioned, replayable streams with states; one in a file, one on a Kafka cluster."""
