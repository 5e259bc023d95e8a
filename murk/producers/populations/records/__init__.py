"""Where records come from: files, data frames, tables, and mappings in memory."""
