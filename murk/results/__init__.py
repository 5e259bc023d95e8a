"""Reports, tables, pictures and predictions from an estimate."""
