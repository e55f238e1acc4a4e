"""What programs do with unix sockets of their own: python3 own_unix.py [FACT]...

Says one line a fact, and the same lines with netbox and without.
"""

import array
import asyncio
import ctypes
import errno
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
UNIX = socket.AF_UNIX
# `linux/tcp.h`.
TCP_FASTOPEN_CONNECT = 30
FOLDER = tempfile.mkdtemp(dir=os.environ["HOME"])


def path(name):
    return os.path.join(FOLDER, name)


def listener(name, kind=socket.SOCK_STREAM, backlog=64):
    server = socket.socket(UNIX, kind)
    server.bind(name)
    server.listen(backlog)
    return server


def greet(server, name):
    """One connection and one word over it."""
    client = socket.socket(UNIX, server.type)
    client.connect(name)
    accepted, _ = server.accept()
    client.send(b"word")
    return accepted.recv(10)


def error_of(act):
    try:
        return act()
    except OSError as error:
        return errno.errorcode[error.errno]


def raw_connect(number, address, length):
    return 0 if LIBC.connect(number, address, ctypes.c_uint(length)) == 0 else errno.errorcode[ctypes.get_errno()]


def streams_and_seqpackets():
    kinds = [socket.SOCK_STREAM, socket.SOCK_SEQPACKET]
    return [greet(listener(path(kind.name), kind), path(kind.name)) for kind in kinds]


def every_name():
    server = listener(path("named"))
    os.chdir(FOLDER)
    os.mkdir("below")
    os.symlink(path("named"), "below/absolute")
    os.symlink("../named", "below/relative")
    os.link("named", "hard")
    handle = os.open("named", os.O_PATH)
    names = ["named", "./named", "below/../named", "below/absolute", path("below/relative"), "hard"]
    names += ["/proc/self/fd/%d" % handle, "/proc/thread-self/fd/%d" % handle, "/dev/fd/%d" % handle]
    names += ["/proc/%d/fd/%d" % (os.getpid(), handle), "/proc/self/cwd/named"]
    said = [greet(server, name) for name in names]
    os.rename("named", "renamed")
    said.append(greet(server, "renamed"))
    os.unlink("renamed")
    os.unlink("hard")
    return said + [error_of(lambda: greet(server, "renamed")), greet(server, "/proc/self/fd/%d" % handle)]


def the_longest_names():
    os.chdir(FOLDER)
    said = [greet(listener("n" * 107), "n" * 107)]
    # All of the address, without a zero byte at the end; Python's own call takes no such name.
    address = ctypes.create_string_buffer(struct.pack("H", UNIX) + b"m" * 108, 110)
    server, client = socket.socket(UNIX), socket.socket(UNIX)
    said.append(LIBC.bind(server.fileno(), address, 110))
    server.listen()
    said.append(raw_connect(client.fileno(), address, 110))
    return said


def names_in_another_thread_and_another_folder():
    server = listener(path("threaded"))
    said = []

    def act():
        # A folder and descriptors of this thread's own.
        LIBC.unshare(ctypes.c_int(0x200 | 0x400))
        os.chdir(FOLDER)
        said.append(greet(server, "threaded"))

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return said


def abstract_names():
    name = "\0own-%d" % os.getpid()
    server = listener(name)
    unnamed = socket.socket(UNIX)
    unnamed.bind("")
    unnamed.listen()
    return greet(server, name), greet(unnamed, unnamed.getsockname())


def pairs():
    said = []
    for kind in [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM]:
        one, other = socket.socketpair(UNIX, kind)
        one.send(b"one")
        one.send(b"two")
        said.append(other.recv(3))
        said.append((os.get_inheritable(one.fileno()), one.getblocking()))
    one, _ = socket.socketpair(UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    said.append(error_of(lambda: one.recv(1)))
    return said


def credentials_and_descriptors():
    one, other = socket.socketpair()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    if os.fork() == 0:
        with open(path("sent"), "w") as file:
            file.write("sent along")
        file = open(path("sent"))
        one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])
        os._exit(0)
    _, ancillary, _, _ = other.recvmsg(1, 200)
    os.wait()
    said = []
    for _, kind, data in sorted(ancillary, key=lambda item: item[1]):
        if kind == socket.SCM_RIGHTS:
            said.append(os.read(struct.unpack("i", data[:4])[0], 100))
        else:
            said.append(struct.unpack("iii", data)[1] == os.getuid())
    return said


def accepted_later(server):
    """A socket that is connected, and leaves the server's queue empty."""
    server.accept()
    client = socket.socket(UNIX)
    client.connect("errors")
    server.accept()
    return client


def errors():
    os.chdir(FOLDER)
    server = listener("errors", backlog=0)
    waiting = socket.socket(UNIX)
    waiting.connect("errors")
    full = socket.socket(UNIX)
    full.setblocking(False)
    stale = socket.socket(UNIX)
    stale.bind("stale")
    buffer = ctypes.create_string_buffer(struct.pack("H", UNIX) + b"errors\0", 200)
    new = socket.socket(UNIX)
    # Whichever of these gets as far as the full queue must not wait there.
    for client in [waiting, new, server]:
        client.setblocking(False)
    folder = os.open(".", os.O_PATH)
    return [
        error_of(lambda: full.connect("errors")),
        error_of(lambda: waiting.connect("errors")),
        error_of(lambda: new.connect("stale")),
        error_of(lambda: new.connect("missing")),
        error_of(lambda: new.connect("errors/below")),
        error_of(lambda: new.connect("/etc/passwd")),
        error_of(lambda: socket.socket(UNIX, socket.SOCK_SEQPACKET).connect("errors")),
        error_of(lambda: accepted_later(server).connect("errors")),
        raw_connect(-1, buffer, 9),
        raw_connect(999, buffer, 9),
        raw_connect(folder, buffer, 9),
        raw_connect(new.fileno(), None, 9),
        raw_connect(new.fileno(), buffer, 2),
        raw_connect(new.fileno(), buffer, 0),
        raw_connect(new.fileno(), buffer, 111),
        raw_connect(new.fileno(), buffer, 129),
        raw_connect(new.fileno(), buffer, 0xFFFFFFFF),
        raw_connect(new.fileno(), ctypes.create_string_buffer(16), 16),
        error_of(lambda: server.connect("errors")),
    ]


def internet_sockets():
    server = socket.create_server(("127.0.0.1", 0))
    address = server.getsockname()
    unspecified = ctypes.create_string_buffer(16)
    client = socket.socket()
    client.connect(address)
    said = [error_of(lambda: client.connect(address))]
    said.append(raw_connect(client.fileno(), unspecified, 16))
    said.append(error_of(client.getpeername))
    client.connect(address)
    patient = socket.socket()
    patient.setblocking(False)
    said.append(patient.connect_ex(address))
    fast = socket.socket()
    fast.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
    fast.connect(address)
    said.append(fast.send(b"fast"))
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.connect(address)
    said.append(udp.getpeername() == address)
    said.append(raw_connect(udp.fileno(), unspecified, 16))
    said.append(error_of(udp.getpeername))
    routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    said.append(error_of(lambda: routes.connect((0, 0))))
    said.append(error_of(lambda: routes.connect((0, 1))) if os.getuid() else "EPERM")
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    said.append(error_of(lambda: socket.create_connection(("127.0.0.1", port))))
    impatient = socket.socket()
    said.append(impatient.connect_ex(("127.0.0.1", port)))
    v6 = socket.create_server(("::1", 0), family=socket.AF_INET6)
    said.append(error_of(lambda: socket.create_connection(v6.getsockname()[:2]).close()))
    return said


def a_manager_of_another_process():
    said = []
    for method in ["fork", "spawn", "forkserver"]:
        with multiprocessing.get_context(method).Manager() as manager:
            shared = manager.dict()
            shared["key"] = method
            said.append(shared["key"])
    return said


def asynchronous_servers():
    async def serve():
        async def answer(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        server = await asyncio.start_unix_server(answer, path("async"))
        reader, writer = await asyncio.open_unix_connection(path("async"))
        writer.write(b"line\n")
        line = await reader.readline()
        server.close()
        return line

    return asyncio.run(serve())


def another_user():
    """Where root becomes somebody else, that is who connects, and who may not connect everywhere."""
    if os.getuid() != 0:
        return "not root"
    os.chmod(FOLDER, 0o755)
    os.mkdir(path("closed"), 0o700)
    servers = {name: listener(path(name)) for name in ["open", "shut", "closed/open"]}
    for name in servers:
        os.chmod(path(name), 0o700 if name == "shut" else 0o777)
    abstract = listener("\0another-%d" % os.getpid())
    handle = os.open(path("open"), os.O_PATH)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setgroups([12345])
        os.setgid(12346)
        os.setuid(12347)
        names = [path(name) for name in servers] + ["/proc/self/fd/%d" % handle, "\0another-%d" % os.getppid()]
        said = [error_of(lambda name=name: socket.socket(UNIX).connect(name)) for name in names]
        os.write(writer, repr(said).encode())
        os._exit(0)
    os.wait()
    credentials = servers["open"].accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    unnamed = abstract.accept()[0].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return os.read(reader, 500), struct.unpack("iii", credentials)[1:], struct.unpack("iii", unnamed)[1:]


def three_hundred_processes():
    server = listener(path("forks"), backlog=1000)
    children = []
    for _ in range(300):
        child = os.fork()
        if child == 0:
            good = all(not socket.socket(UNIX).connect_ex(path("forks")) for _ in range(3))
            os._exit(0 if good else 1)
        children.append(child)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    server.setblocking(False)
    accepted = 0
    while True:
        try:
            server.accept()
            accepted += 1
        except BlockingIOError:
            return failed, accepted


def thirty_two_threads():
    server = listener(path("threads"), backlog=4096)
    failures = []

    def act():
        for _ in range(100):
            with socket.socket(UNIX) as client:
                failures.extend([client.connect_ex(path("threads"))])

    threads = [threading.Thread(target=act) for _ in range(32)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    server.close()
    return len(failures), sum(failure != 0 for failure in failures)


FACTS = [
    streams_and_seqpackets,
    every_name,
    the_longest_names,
    names_in_another_thread_and_another_folder,
    abstract_names,
    pairs,
    credentials_and_descriptors,
    errors,
    internet_sockets,
    a_manager_of_another_process,
    asynchronous_servers,
    another_user,
    three_hundred_processes,
    thirty_two_threads,
]

if __name__ == "__main__":
    for fact in FACTS:
        if sys.argv[1:] and fact.__name__ not in sys.argv[1:]:
            continue
        print(fact.__name__, fact(), flush=True)
