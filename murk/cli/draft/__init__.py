"""Task files written by ``murk init``, with a comment on the origin of each line."""
