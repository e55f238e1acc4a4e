"""What the attempts to escape have in common: system calls that Python has no name for, and the words they speak.

An attempt says `got: WHAT` for each thing that it got, and `failed: ERRNO` for what it was refused.
"""

import ctypes
import errno
import os
import platform
import sys

LIBC = ctypes.CDLL(None, use_errno=True)

# asm/unistd_64.h of x86-64, and asm-generic/unistd.h, which aarch64 has.
NUMBERS = {
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_setup": (425, 425),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "open_by_handle_at": (304, 265),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pivot_root": (155, 41),
    "request_key": (249, 218),
    "seccomp": (317, 277),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
MACHINE = platform.machine()

NEWNS, NEWCGROUP, NEWUTS, NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEWUSER, NEWPID, NEWNET = 0x10000000, 0x20000000, 0x40000000


def say(*words):
    print(*words, flush=True)


def check(result):
    """The result of a C function; an exception where it is -1."""
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def syscall(name, *arguments):
    number = NUMBERS[name][MACHINE == "aarch64"]
    LIBC.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    return check(LIBC.syscall(ctypes.c_long(number), *words))


def attempt(what, act):
    """Tries it and says what came of it. Returns what it got, or None."""
    try:
        result = act()
        say("got:", what)
        return result
    except OSError as error:
        say("failed:", what, errno.errorcode.get(error.errno, str(error)))
        return None


def enter_namespaces(flags, as_root=False):
    """Makes namespaces and enters them. In a user namespace the user is who it was, or root."""
    uid, gid = os.getuid(), os.getgid()
    check(LIBC.unshare(flags))
    if flags & NEWUSER:
        write("/proc/self/setgroups", "deny")
        write("/proc/self/uid_map", "%d %d 1" % (0 if as_root else uid, uid))
        write("/proc/self/gid_map", "%d %d 1" % (0 if as_root else gid, gid))


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def run(attempts):
    """Runs the attempt that the first argument names."""
    attempts[sys.argv[1]](*sys.argv[2:])
