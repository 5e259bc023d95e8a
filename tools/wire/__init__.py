"""The page on the wire: its words, its examples, and the JSON Schema of every message."""
