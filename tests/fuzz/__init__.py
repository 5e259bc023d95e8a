"""Hostile inputs by a grammar: ``python -m tests.fuzz`` (`make fuzz`)."""
