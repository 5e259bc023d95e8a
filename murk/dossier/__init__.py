"""A dossier: one page for a privacy officer's file, made from a task, the code and a deployment's settings."""
