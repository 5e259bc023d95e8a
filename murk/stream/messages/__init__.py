"""What is written to a log: releases, models and states, with their codec."""
