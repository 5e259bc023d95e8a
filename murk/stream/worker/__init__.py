"""Workers: releases off a log into learners, each exactly once."""
