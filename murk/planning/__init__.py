"""Forecasts of what a task would learn from a number of people, before anybody releases anything."""
