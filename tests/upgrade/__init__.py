"""Files of the last release, taken up by this one; and this one's, judged by the last one's rules."""
