"""The web server of the monitor: its page, metrics, status and runbook."""
