"""Logs: the contract, and its implementations in a file and on a Kafka cluster."""
