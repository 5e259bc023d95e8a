"""Organisations' releases: one sketch for each window of a stream of records."""
