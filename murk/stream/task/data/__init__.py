"""Raw values, columns and their coding."""
