"""Sources of records: files, data frames, tables, and mappings in memory."""
