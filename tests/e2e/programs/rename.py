"""Renames from a mount namespace that has no mounts but its own: python3 rename.py FOLDER NAME [remove] [stay] [closed] [taken]

It opens the folder, goes into a new user and mount namespace, changes the root and unmounts the old one, and then renames
the name in the folder that it still has open, and puts another directory there. With `remove` it removes it first; with `stay` it does not end.
With `taken` it takes the names to which the directory could be moved away again, and with `closed` it closes both folders.
"""

import ctypes
import os
import signal
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_MOUNTS = 0x10000000, 0x20000
PRIVATE, DETACH = 0x44000, 2
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}[os.uname().machine]


def check(result):
    if result != 0:
        error = ctypes.get_errno()
        sys.exit("failed: " + os.strerror(error))


def main(folder, name, *how):
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    uid, gid = os.getuid(), os.getgid()
    check(LIBC.unshare(NEW_USER | NEW_MOUNTS))
    for file, text in [("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)]:
        with open("/proc/self/" + file, "w") as out:
            out.write(text)
    check(LIBC.mount(None, b"/", None, PRIVATE, None))
    check(LIBC.mount(b"tmpfs", b"/tmp", b"tmpfs", 0, None))
    os.mkdir("/tmp/old")
    check(LIBC.syscall(PIVOT_ROOT, b"/tmp", b"/tmp/old"))
    os.chdir("/")
    check(LIBC.umount2(b"/old", DETACH))
    if "remove" in how:
        os.rmdir(name, dir_fd=handle)
    else:
        os.rename(name, "gone", src_dir_fd=handle, dst_dir_fd=handle)
    print("renamed", flush=True)
    os.mkdir(name, dir_fd=handle)
    for number in range(1, 100) if "taken" in how else ():
        os.mkdir("%s.replaced-%d" % (name, number), dir_fd=handle)
    if "closed" in how:
        os.fchmod(os.open(name, os.O_RDONLY, dir_fd=handle), 0o555)
        os.fchmod(handle, 0o555)
    while "stay" in how:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
