"""A supervisor of connects as it must not be: python3 continuing.py COMMAND...

It looks at the address of each connect(2) of the command's, refuses those of unix sockets, and lets the kernel go on with
the others (SECCOMP_USER_NOTIF_FLAG_CONTINUE). The kernel then looks again, and the command may have put another address
and another socket in the place of those that were judged. netbox makes each connect itself, of what it has judged.
"""

import array
import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys
import threading

from calls import LIBC, MACHINE, check, syscall

CONNECT = 203 if MACHINE == "aarch64" else 42
# linux/seccomp.h and linux/bpf_common.h
SET_MODE_FILTER, NEW_LISTENER, USER_NOTIF, ALLOW, CONTINUE = 1, 8, 0x7FC00000, 0x7FFF0000, 1
RECEIVE, SEND = 0xC0502100, 0xC0182101
PR_SET_NO_NEW_PRIVS, PR_SET_PTRACER, ANY = 38, 0x59616D61, ctypes.c_ulong(-1)


def main(*command):
    ours, theirs = socket.socketpair()
    command_process = os.fork()
    if command_process == 0:
        # Where Yama is in force, the supervisor is one who may look.
        LIBC.prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
        listener = load_filter()
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
        os.close(listener)
        os.execvp(command[0], command)
    _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
    (listener,) = array.array("i", ancillary[0][2])
    threading.Thread(target=supervise, args=[listener], daemon=True).start()
    code = os.waitstatus_to_exitcode(os.waitpid(command_process, 0)[1])
    os._exit(code)


def load_filter():
    """Every connect goes to the listener, which is what is returned."""
    instructions = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, CONNECT),
        (0x06, 0, 0, USER_NOTIF),
        (0x06, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in instructions))
    program = struct.pack("=H6xQ", len(instructions), ctypes.addressof(code))
    check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    return syscall("seccomp", SET_MODE_FILTER, NEW_LISTENER, program)


def supervise(listener):
    while True:
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, RECEIVE, notification)
        except OSError:
            # The caller is gone.
            continue
        number, process, _ = struct.unpack_from("=QII", notification)
        (address,) = struct.unpack_from("=Q", notification, 16 + 16 + 8)
        is_unix = family(process, address) == socket.AF_UNIX
        error, flags = (-errno.EACCES, 0) if is_unix else (0, CONTINUE)
        try:
            fcntl.ioctl(listener, SEND, struct.pack("=QqiI", number, 0, error, flags))
        except OSError:
            pass


def family(process, address):
    memory = os.open("/proc/%d/mem" % process, os.O_RDONLY)
    try:
        return int.from_bytes(os.pread(memory, 2, address), sys.byteorder)
    finally:
        os.close(memory)


main(*sys.argv[1:])
