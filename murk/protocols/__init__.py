"""The five protocols, one folder each, and modules that several of them share."""
