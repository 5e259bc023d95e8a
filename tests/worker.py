"""What is started in place of Python: it lets a process be forked that does as told (tests/forking.py), and waits."""

import os
import socket
import sys

with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as channel:
    channel.connect(sys.argv[1])
    # The last of Python's arguments is the program.
    socket.send_fds(channel, [sys.argv[-1].encode()], [0, 1, 2])
    # They are that process's alone, and end with it.
    os.close(0)
    os.close(1)
    channel.recv(1)
