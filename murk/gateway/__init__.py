"""HTTP access to a log: devices read the task and the newest model, and send releases."""
