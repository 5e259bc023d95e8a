"""Connections to a Kafka cluster: settings, clients, group members and errors."""
