"""What the tests of faults share: processes to be killed, messages to be learned, and what must come out."""
