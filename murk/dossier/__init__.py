"""Privacy dossiers: one page for a privacy officer, made from a task, the code and a deployment's settings."""
