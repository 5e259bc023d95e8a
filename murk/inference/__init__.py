"""Estimates: coefficients, their uncertainty, units and path, and tests of whether they have changed."""
