"""python3 fast_open.py ADDRESS PORT TEXT: sends the text with the connect, without connect(2), and shows the answer."""

import errno
import socket
import sys

address, port, text = sys.argv[1:]
client = socket.socket()
client.settimeout(20)
try:
    client.sendto(text.encode().decode("unicode_escape").encode(), socket.MSG_FASTOPEN, (address, int(port)))
    print("answer:", client.recv(65536).decode("utf-8", "backslashreplace"))
except OSError as error:
    print("failed:", errno.errorcode.get(error.errno, error))
