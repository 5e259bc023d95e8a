"""The long campaign of kills: ``python -m tests.soak`` (`make soak`)."""
