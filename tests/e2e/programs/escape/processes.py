"""Attempts to get out by other processes: python3 processes.py ATTEMPT ARGUMENT...

Each is made on the process with the number that is its argument: one of the host's, or the sandbox's first.
"""

import ctypes
import fcntl
import os
import pty
import signal
import socket
import subprocess
import termios

from calls import LIBC, NEWCGROUP, NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, NEWUTS, attempt, check, enter_namespaces, run, say, syscall

SECRET = b"the secret of a process of the host's"
MEMORY = ctypes.create_string_buffer(SECRET)


def beside(*command):
    """Runs the command beside a process of the host's that has a secret. `PID` and `ADDRESS` in the command stand for its
    number and where in its memory the secret is. Says in the end what was done to it.
    """
    # A group of their own: what goes to the whole group goes to nobody else.
    if os.getpid() != os.getpgrp():
        os.setsid()
    reader, writer = os.pipe()
    victim = os.fork()
    if victim == 0:
        os.close(writer)
        be_a_victim(reader)
    os.close(reader)
    place = {"PID": str(victim), "ADDRESS": str(ctypes.addressof(MEMORY))}
    signal.signal(signal.SIGWINCH, lambda *_: None)
    subprocess.run([place.get(word, word) for word in command])
    os.close(writer)
    os.waitpid(victim, 0)


def be_a_victim(reader):
    """Waits for the end of the pipe, and says whether a signal came before it."""
    PR_SET_PTRACER, ANY = 0x59616D61, ctypes.c_ulong(-1)
    # Where Yama is in force, this is a process that lets itself be traced.
    LIBC.prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
    secret = os.memfd_create("secret")
    os.write(secret, SECRET)
    os.dup2(secret, 9)
    hits = []
    signal.signal(signal.SIGWINCH, lambda *_: hits.append(1))
    os.read(reader, 1)
    say("the victim was hit" if hits else "the victim is well")
    os._exit(0)


def touch(pid, address="0"):
    """Every way to look into a process or to lead it."""
    pid, address = int(pid), int(address)
    attempt("its environment", lambda: read("/proc/%d/environ" % pid))
    attempt("its memory file", lambda: os.close(os.open("/proc/%d/mem" % pid, os.O_RDWR)))
    attempt("its root", lambda: os.listdir("/proc/%d/root/" % pid))
    attempt("its folder", lambda: os.listdir("/proc/%d/cwd/" % pid))
    attempt("its descriptors", lambda: os.readlink("/proc/%d/fd/1" % pid))
    attempt("its maps", lambda: read("/proc/%d/maps" % pid))
    attempt("its memory", lambda: peek(pid, address))
    attempt("a trace", lambda: trace(pid))
    attempt("a descriptor", lambda: take(pid, 9 if address else 1))
    if address:
        # Those of the sandbox's own first process it may have: it harms nobody but itself.
        attempt("its limits", lambda: check(LIBC.prlimit(pid, 7, (ctypes.c_ulong * 2)(64, 64), None)))


def read(path):
    with open(path, "rb") as file:
        return file.read()


def peek(pid, address):
    """Reads the secret; of a process that has none, any byte."""
    class Part(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    address = address or int(read("/proc/self/maps").split(b"-")[0], 16)
    buffer = ctypes.create_string_buffer(len(SECRET))
    here, there = Part(ctypes.addressof(buffer), len(SECRET)), Part(address, len(SECRET))
    check(LIBC.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))


def trace(pid):
    ATTACH, DETACH = 16, 17
    check(LIBC.ptrace(ATTACH, pid, None, None))
    os.waitpid(pid, 0)
    check(LIBC.ptrace(DETACH, pid, None, None))


def take(pid, number):
    os.close(syscall("pidfd_getfd", syscall("pidfd_open", pid, 0), number, 0))


def at_the_other_end(*command):
    """Runs the command with a unix socket as its standard input whose other end is this process's."""
    near, far = socket.socketpair()
    signal.signal(signal.SIGWINCH, lambda *_: None)
    subprocess.run(command, stdin=far)
    near.close()


def reach_peer():
    """A handle of the process at the other end of standard input, and what one could do with it (unix(7), linux/pidfd.h)."""
    SO_PEERPIDFD, GET_NET_NAMESPACE = 77, 0xFF04
    peer = attempt("a handle", lambda: socket.socket(fileno=0).getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
    if peer is not None:
        attempt("a signal", lambda: signal.pidfd_send_signal(peer, signal.SIGWINCH))
        attempt("a descriptor", lambda: os.close(syscall("pidfd_getfd", peer, 0, 0)))
        attempt("a namespace", lambda: os.close(fcntl.ioctl(peer, GET_NET_NAMESPACE)))


NAMESPACES = {
    "user": NEWUSER, "net": NEWNET, "mnt": NEWNS, "pid": NEWPID, "ipc": NEWIPC, "uts": NEWUTS, "cgroup": NEWCGROUP,
}  # fmt: skip


def enter(pid):
    """Enters the namespaces of a process, by their files and by a handle of the process."""
    for name, flag in NAMESPACES.items():
        attempt("ns/" + name, lambda: check(LIBC.setns(os.open("/proc/%s/ns/%s" % (pid, name), os.O_RDONLY), flag)))
    for name, flag in NAMESPACES.items():
        attempt("pidfd " + name, lambda: check(LIBC.setns(syscall("pidfd_open", int(pid), 0), flag)))


def enter_from_below(pid):
    """The same as the root of a user namespace of its own."""
    enter_namespaces(NEWUSER | NEWNS, as_root=True)
    enter(pid)


def send(pid):
    """A signal that does no harm, to a process, to the group (0) or to all (-1)."""
    signal.signal(signal.SIGWINCH, lambda *_: None)
    attempt("sent", lambda: os.kill(int(pid), signal.SIGWINCH))


def hurt(pid):
    """Ends and stops a process."""
    for number in (signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL):
        attempt(number.name, lambda: os.kill(int(pid), number))


def type_into_terminal():
    """Types into a terminal, as if a person had: once this program is gone, a shell would read it (TIOCSTI)."""
    TIOCLINUX = 0x541C
    master, terminal = pty.openpty()
    child = os.fork()
    if child == 0:
        os.setsid()
        attempt("the terminal", lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0))
        attempt("typed", lambda: [fcntl.ioctl(terminal, termios.TIOCSTI, bytes([letter])) for letter in b"typed\n"])
        # What a console takes: paste what is selected. This is no console, and would say so.
        attempt("pasted", lambda: fcntl.ioctl(terminal, TIOCLINUX, b"\3"))
        os._exit(0)
    os.waitpid(child, 0)
    os.set_blocking(terminal, False)
    attempt("read", lambda: os.read(terminal, 64))
    os.close(master)


if __name__ == "__main__":
    run(globals())
