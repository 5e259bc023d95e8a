"""Exported metrics, their exporters and alerts."""
