"""Unix sockets, from the side of a program that wants to reach one: python3 unix.py WHAT ARGUMENT...

Its words are those of probe.py: `connected`, `sent`, `failed: ERRNO`.
"""

import ctypes
import errno
import os
import socket
import struct
import sys
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
KINDS = {
    "stream": socket.SOCK_STREAM,
    "seqpacket": socket.SOCK_SEQPACKET,
    "dgram": socket.SOCK_DGRAM,
    "raw": socket.SOCK_RAW,
}


def say(*words):
    print(*words, flush=True)


def attempt(act, word):
    try:
        act()
        say(word)
    except OSError as error:
        say("failed:", errno.errorcode.get(error.errno, str(error)))


def connect(kind, path):
    """Connects a socket of this kind."""

    def act():
        socket.socket(socket.AF_UNIX, KINDS[kind]).connect(path)

    attempt(act, "connected")


def names(path):
    """Connects by each name that a file can have."""
    folder, name = os.path.split(path)
    own = os.path.join(folder, "names-%d" % os.getpid())
    os.mkdir(own)
    os.symlink(path, own + "/absolute")
    os.symlink("../" + name, own + "/relative")
    os.symlink(folder, own + "/folder")
    os.link(path, own + "/hard")
    os.chdir(own)
    handle = os.open(path, os.O_PATH)
    opened = os.open(folder, os.O_PATH)
    for spelling in [
        path,
        "//" + path + "/",
        "absolute",
        own + "/relative",
        "folder/" + name,
        "hard",
        "../" + name,
        "./.././" + name,
        "/proc/self/cwd/../" + name,
        "/proc/self/root" + path,
        "/proc/self/fd/%d" % handle,
        "/proc/thread-self/fd/%d" % handle,
        "/proc/%d/fd/%d" % (os.getpid(), handle),
        "/dev/fd/%d" % handle,
        "/proc/self/fd/%d/%s" % (opened, name),
    ]:
        connect("stream", spelling)


def later(path):
    """Connects once there is a line on standard input."""
    say("ready")
    sys.stdin.readline()
    connect("stream", path)


def send(kind, path):
    """Sends a datagram from a socket of this kind."""

    def act():
        socket.socket(socket.AF_UNIX, KINDS[kind]).sendto(b"a secret", path)

    attempt(act, "sent")


def pair(kind, path):
    """Sends a datagram to a path from one end of a pair, and connects that end to it."""
    one, other = socket.socketpair(socket.AF_UNIX, KINDS[kind])
    attempt(lambda: one.sendto(b"a secret", path), "sent")
    attempt(lambda: one.sendmsg([b"a secret"], [], 0, path), "sent")
    attempt(lambda: one.connect(path), "connected")
    attempt(lambda: one.send(b"a secret"), "sent")


def uring():
    """The system call that makes an io_uring; its arguments are wrong on purpose."""
    say("io_uring:", errno.errorcode[-raw_syscall(425, 0, 0)])


def raw_syscall(number, *arguments):
    result = LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(argument) for argument in arguments])
    return result if result >= 0 else -ctypes.get_errno()


def race(path, tries, until="the end"):
    """Connects an internet socket to an address of the sandbox's own, again and again, while another thread puts a unix
    socket in the place of the descriptor and the path of a host's socket in the place of the address.

    The first bytes of both addresses differ in the family alone: port and address of the one are text of the other. With
    `until` as `won` it stops once it got through.
    """
    os.chdir(os.path.dirname(path))
    name = os.path.basename(path).encode()
    assert len(name) < 14 and name[2] == 127
    address = ctypes.create_string_buffer(struct.pack("=H", socket.AF_INET) + name + b"\0" * (16 - 2 - len(name)), 16)
    done = threading.Event()
    number = os.dup(0)

    def flip():
        inet = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        while not done.is_set():
            unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            os.dup2(unix.fileno(), number)
            address[0] = socket.AF_UNIX
            os.dup2(inet.fileno(), number)
            address[0] = socket.AF_INET
            inet.close()
            inet = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            unix.close()

    sys.setswitchinterval(1e-6)
    flipper = threading.Thread(target=flip)
    flipper.start()
    won = 0
    for _ in range(int(tries)):
        # An internet socket that connects says EINPROGRESS; 0 is a unix socket that is connected.
        won += LIBC.connect(number, address, 16) == 0
        if won and until == "won":
            break
    done.set()
    flipper.join()
    say("done, won", won)


def crowd(path, count, end):
    """Processes that wait in a connect for room in a queue. With `end` this process ends and leaves them; else it kills
    them, and says how many connections come once there is room, and there is a line on standard input.
    """
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(path)
    waiting = []
    for _ in range(int(count)):
        process = os.fork()
        if process == 0:
            socket.socket(socket.AF_UNIX).connect(path)
            os._exit(0)
        waiting.append(process)
    for process in waiting:
        while not is_connecting(process):
            os.sched_yield()
    if end == "end":
        say("all wait")
        return
    for process in waiting:
        os.kill(process, 9)
        os.waitpid(process, 0)
    say("all killed")
    sys.stdin.readline()
    server.setblocking(False)
    accepted = 0
    try:
        while True:
            server.accept()
            accepted += 1
    except BlockingIOError:
        say("accepted", accepted)


def flood(path, count, host, port, refusals):
    """Processes that wait in a connect for room in a queue, until at least so many are refused: one whose turn to be
    refused is yet to come waits too. Then a connection over TCP, and the sum of what became of them.
    """
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen(0)
    first = socket.socket(socket.AF_UNIX)
    first.connect(path)
    waiting = set()
    for _ in range(int(count)):
        process = os.fork()
        if process == 0:
            try:
                socket.socket(socket.AF_UNIX).connect(path)
            except OSError as error:
                os._exit(error.errno)
            os._exit(0)
        waiting.add(process)
    refused = []
    while len(refused) < int(refusals) or any(not is_connecting(process) for process in waiting):
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            waiting.remove(process)
            refused.append(errno.errorcode[os.waitstatus_to_exitcode(status)])
    with socket.create_connection((host, int(port)), 20) as connection:
        say("TCP:", connection.recv(3).decode())
    for process in waiting:
        os.kill(process, 9)
        os.waitpid(process, 0)
    say("waited", len(waiting), "refused", len(refused), *set(refused))


def hang(path, own, host, port):
    """A process that connects to a path that nobody answers for; meanwhile connections of other kinds."""
    process = os.fork()
    if process == 0:
        socket.socket(socket.AF_UNIX).connect(path)
        os._exit(0)
    while not is_connecting(process):
        os.sched_yield()
    server = socket.socket(socket.AF_UNIX)
    server.bind(own)
    server.listen(8)
    for _ in range(20):
        socket.socket(socket.AF_UNIX).connect(own)
        server.accept()
    with socket.create_connection((host, int(port)), 20) as connection:
        say("TCP:", connection.recv(3).decode())
    say("still waits", is_connecting(process))


def is_connecting(process):
    """Whether it is in connect(2), by its number on x86-64 or aarch64."""
    try:
        with open("/proc/%d/syscall" % process) as file:
            return file.read().split()[0] in ["42", "203"]
    except PermissionError:
        # It has ended, and was not waited for.
        return False


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
