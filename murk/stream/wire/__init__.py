"""Messages of a log (releases, models and states) and their codec."""
