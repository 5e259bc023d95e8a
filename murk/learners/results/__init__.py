"""Reports, tables, pictures and predictions of what was learned."""
