"""Organisations' releases: one sketch for each window of an organisation's records."""
