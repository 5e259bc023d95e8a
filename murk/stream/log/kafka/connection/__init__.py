"""Reaching a cluster: addresses, credentials, clients and what their errors mean."""
