"""Leaves processes behind that write to a file through an open folder, again and again, until they are killed:
python3 late.py FOLDER FILE

They do so from a mount namespace of their own, and this process leaves the old one by its end.
"""

import ctypes
import os
import sys

NEW_USER, NEW_MOUNTS = 0x10000000, 0x20000


def write(folder, file):
    while True:
        try:
            with open(os.open(file, os.O_WRONLY | os.O_TRUNC, dir_fd=folder), "w") as out:
                out.write("evil\n")
            return
        except OSError:
            pass


def main(folder, file):
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    reader, writer = os.pipe()
    for _ in range(2):
        if os.fork() == 0:
            if ctypes.CDLL(None).unshare(NEW_USER | NEW_MOUNTS) == 0:
                os.write(writer, b"x")
            os.close(writer)
            write(handle, file)
            os._exit(0)
    os.close(writer)
    ready = b""
    while len(ready) < 2:
        ready += os.read(reader, 2) or sys.exit("no namespace")
    print("left behind", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
