"""What Sphinx needs beyond its own to build the documentation site; ``docs/conf.py`` names each."""
