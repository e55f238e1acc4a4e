"""Attempts to get out by inherited descriptors: python3 descriptors.py ATTEMPT ARGUMENT..."""

import ctypes
import os
import socket
import sys

from calls import LIBC, attempt, check, run, say, syscall


def unix_listener():
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")
    listener.listen()
    return listener.detach()


def ring():
    return syscall("io_uring_setup", 1, ctypes.create_string_buffer(120))


def perf():
    # struct perf_event_attr: a software event, which counts this process in user mode.
    attributes = ctypes.create_string_buffer(b"\1\0\0\0\x80\0\0\0" + bytes(32) + b"\x60", 128)
    return syscall("perf_event_open", attributes, 0, -1, -1, 0)


def userfaultfd():
    USER_MODE_ONLY = 1
    return syscall("userfaultfd", USER_MODE_ONLY)


KINDS = {
    "tcp": lambda: socket.socket().detach(),
    "tcp6": lambda: socket.socket(socket.AF_INET6).detach(),
    "tcp-listener": lambda: socket.create_server(("127.0.0.1", 0)).detach(),
    "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).detach(),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).detach(),
    "unix": lambda: socket.socket(socket.AF_UNIX).detach(),
    "unix-datagram": lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].detach(),
    "unix-listener": unix_listener,
    "folder": lambda: os.open("/", os.O_RDONLY),
    "path": lambda: os.open("/etc/passwd", os.O_PATH),
    "network-namespace": lambda: os.open("/proc/self/ns/net", os.O_RDONLY),
    "user-namespace": lambda: os.open("/proc/self/ns/user", os.O_RDONLY),
    "process": lambda: os.pidfd_open(os.getpid()),
    "control-file": lambda: os.open("/proc/self/oom_score_adj", os.O_WRONLY),
    "epoll": lambda: check(LIBC.epoll_create1(0)),
    "eventfd": lambda: check(LIBC.eventfd(0, 0)),
    "inotify": lambda: check(LIBC.inotify_init1(0)),
    "timer": lambda: check(LIBC.timerfd_create(1, 0)),
    "ring": ring,
    "perf": perf,
    "userfaultfd": userfaultfd,
    "memory": lambda: os.memfd_create("memory", 0),
}
# What is harmless as standard input, and what a kernel may not have or may not give to a user.
HARMLESS = ["memory"]
OPTIONAL = ["ring", "perf", "userfaultfd"]


def kinds():
    """The kinds that lead out."""
    say(*[kind for kind in KINDS if kind not in HARMLESS + OPTIONAL])


def keep(*command):
    """Executes the command with one descriptor of each kind from 100 up."""
    for number, (kind, make) in enumerate(KINDS.items(), 100):
        try:
            # Python's own descriptors are closed on exec, and copies are not.
            os.dup2(make(), number)
        except OSError:
            assert kind in OPTIONAL, kind
    os.execvp(command[0], command)


def left():
    """Says what is open besides the standard descriptors and the folder that is read for it."""
    for number in range(3, 256):
        try:
            say("got:", number, os.readlink("/proc/self/fd/%d" % number))
        except OSError:
            pass
    say("seen")


def as_input(kind, *command):
    """Executes the command with a descriptor of this kind as standard input."""
    os.dup2(KINDS[kind](), 0)
    os.execvp(command[0], command)


def connected_input(host, port, *command):
    """Executes the command with a connected socket of the host's as standard input."""
    os.dup2(socket.create_connection((host, int(port))).detach(), 0)
    os.execvp(command[0], command)


def reconnect(host, port):
    """Takes standard input, a socket of the host's, off its peer and connects it to another."""
    unspecified = bytes(16)
    other = socket.AF_INET.to_bytes(2, sys.byteorder) + int(port).to_bytes(2, "big") + socket.inet_aton(host) + bytes(8)
    attempt("disconnected", lambda: check(LIBC.connect(0, unspecified, 16)))
    attempt("connected", lambda: check(LIBC.connect(0, other, 16)))


if __name__ == "__main__":
    run(globals())
