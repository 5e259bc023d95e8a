"""Task files: validation, defaults, and the coding of records."""
