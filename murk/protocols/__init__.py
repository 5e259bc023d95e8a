"""The five protocols, a room each, and what several of them share."""
