"""Estimates: coefficients, their uncertainty, units and path, and whether they have changed."""
