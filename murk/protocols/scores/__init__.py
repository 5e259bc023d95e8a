"""Scores in rounds: published models, people's answers at them, and the solution of the answers' equations."""
