"""Writes what is made from the code: reference pages, dashboards and alert rules (``make generate``)."""
