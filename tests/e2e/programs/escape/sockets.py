"""Attempts to get out by sockets: python3 sockets.py ATTEMPT ARGUMENT..."""

import array
import ctypes
import errno
import mmap
import os
import signal
import socket
import struct

from calls import LIBC, MACHINE, NEWNET, NEWUSER, attempt, check, enter_namespaces, run, say, syscall

TYPES = {"stream": 1, "dgram": 2, "raw": 3, "rdm": 4, "seqpacket": 5, "packet": 10}
# One protocol for each kind of socket that 0 does not bring (linux/in.h, bluetooth.h, linux/netlink.h).
PROTOCOLS = {"ip": 0, "icmp": 1, "sctp": 132, "udplite": 136, "mptcp": 262, "icmp6": 58, "raw": 255, "dccp": 33}


def visit(word, *paths):
    """Says the word to each socket; to those behind `--` in a datagram."""
    kind = socket.SOCK_STREAM
    for path in paths:
        if path == "--":
            kind = socket.SOCK_DGRAM
        else:
            attempt(path, lambda: say_to(kind, path, word))


def say_to(kind, path, word):
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.connect(path)
        connection.send(word.encode())


def families():
    """Says every kind of socket that can be made, in numbers."""
    for family in range(0, 50):
        for name, kind in TYPES.items():
            protocols = PROTOCOLS.values() if family in (socket.AF_INET, socket.AF_INET6) else [0, 1, 3]
            for protocol in protocols:
                made = LIBC.socket(family, kind, protocol)
                if made >= 0:
                    os.close(made)
                    say("got:", family, name, protocol)


def vsock():
    """A socket to the machine that this one runs on: it is bound to no network namespace before Linux 7.0."""
    made = attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
    if made:
        attempt("a port of the host's", lambda: check(LIBC.bind(made.fileno(), struct.pack("=HHIIB3x", 40, 0, 70001, 0xFFFFFFFF, 0), 16)))


def uring(path):
    """Makes a unix socket and connects it by entries of a ring, without socket(2) and connect(2)."""
    ring = attempt("a ring", lambda: Ring())
    if ring is None:
        return
    made = ring.submit(OP_SOCKET, socket.AF_UNIX, 0, 0, offset=socket.SOCK_STREAM)
    address = ctypes.create_string_buffer(struct.pack("=H", socket.AF_UNIX) + path.encode())
    result = ring.submit(OP_CONNECT, made, ctypes.addressof(address), 0, offset=len(address))
    say("got: connected" if result == 0 else "failed: connect " + errno.errorcode[-result])


OP_CONNECT, OP_SOCKET = 16, 45
ENTER_GETEVENTS = 1


class Ring:
    """An io_uring of one entry (io_uring(7)): struct io_uring_params is 120 bytes, its offsets begin at 40 and 80."""

    def __init__(self):
        parameters = ctypes.create_string_buffer(120)
        self.file = syscall("io_uring_setup", 1, parameters)
        self.submission = struct.unpack_from("=8I", parameters, 40)
        self.completion = struct.unpack_from("=8I", parameters, 80)
        self.rings = mmap.mmap(self.file, 4096, offset=0)
        self.completions = mmap.mmap(self.file, 4096, offset=0x8000000)
        self.entries = mmap.mmap(self.file, 4096, offset=0x10000000)

    def submit(self, operation, descriptor, address, length, offset=0):
        """Carries one operation out, and gives its result."""
        entry = struct.pack("=BBHiQQII", operation, 0, 0, descriptor, offset, address, length, 0)
        self.entries[: len(entry)] = entry
        self.entries[len(entry) : 64] = b"\0" * (64 - len(entry))
        (tail,) = struct.unpack_from("=I", self.rings, self.submission[1])
        struct.pack_into("=I", self.rings, self.submission[6], 0)
        struct.pack_into("=I", self.rings, self.submission[1], tail + 1)
        syscall("io_uring_enter", self.file, 1, 1, ENTER_GETEVENTS, 0, 0)
        head, mask = (struct.unpack_from("=I", self.completions, self.completion[at])[0] for at in (0, 2))
        _, result, _ = struct.unpack_from("=QiI", self.completions, self.completion[5] + 16 * (head & mask))
        struct.pack_into("=I", self.completions, self.completion[0], head + 1)
        return result


def other_abi(path):
    """Makes a unix socket and connects it by the system call of 32-bit programs, whose numbers are others."""
    assert MACHINE == "x86_64"
    # push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; int 0x80; pop rbx; ret
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("5389f889f389d1cd805bc3"))
    entry = ctypes.addressof(ctypes.c_char.from_buffer(code))
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint)(entry)
    # Its pointers have 32 bits.
    LIBC.mmap.restype = ctypes.c_void_p
    MAP_32BIT = 0x40
    low = LIBC.mmap(None, 4096, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_32BIT, -1, 0)
    address = struct.pack("=H", socket.AF_UNIX) + path.encode() + b"\0"
    SOCKETCALL, SOCKET, CONNECT = 102, 1, 3

    def socketcall(number, *arguments):
        ctypes.memmove(low, struct.pack("=3I", *arguments), 12)
        result = call(SOCKETCALL, number, low)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return result

    ctypes.memmove(low + 64, address, len(address))
    made = attempt("a socket", lambda: socketcall(SOCKET, socket.AF_UNIX, socket.SOCK_STREAM, 0))
    if made is not None:
        attempt("connected", lambda: socketcall(CONNECT, made, low + 64, len(address)))


def traced():
    """Makes a unix datagram socket by way of another call of a process that is traced: its number and its arguments are
    changed once the kernel has seen the call, and before it makes it.
    """
    assert MACHINE == "x86_64"
    TRACEME, SYSCALL, GETREGS, SETREGS = 0, 24, 12, 13
    child = os.fork()
    if child == 0:
        check(LIBC.ptrace(TRACEME, 0, None, None))
        os.kill(os.getpid(), signal.SIGSTOP)
        os.getppid()
        os._exit(0)
    os.waitpid(child, 0)
    # struct user_regs_struct (sys/user.h); it is at the entry of getppid(2), whose number is 110.
    registers = (ctypes.c_ulonglong * 27)()
    AX, DX, SI, DI, ORIGINAL_AX = 10, 12, 13, 14, 15
    while registers[ORIGINAL_AX] != 110:
        check(LIBC.ptrace(SYSCALL, child, None, None))
        os.waitpid(child, 0)
        check(LIBC.ptrace(GETREGS, child, None, registers))
    registers[ORIGINAL_AX], registers[DI], registers[SI], registers[DX] = 41, socket.AF_UNIX, socket.SOCK_DGRAM, 0
    check(LIBC.ptrace(SETREGS, child, None, registers))
    check(LIBC.ptrace(SYSCALL, child, None, None))
    os.waitpid(child, 0)
    check(LIBC.ptrace(GETREGS, child, None, registers))
    result = ctypes.c_longlong(registers[AX]).value
    say("got: a socket" if result >= 0 else "failed: a socket " + errno.errorcode[-result])
    os.kill(child, signal.SIGKILL)


def fastopen(host, port):
    """Connects by sending, without connect(2)."""
    connection = socket.socket()
    attempt("sent", lambda: connection.sendto(b"hello\n", socket.MSG_FASTOPEN, (host, int(port))))
    attempt("answer", lambda: answer(connection))


def mptcp(host, port):
    """TCP over several paths, which is another protocol to socket(2)."""
    connection = socket.socket(proto=262)
    attempt("connected", lambda: connection.connect((socket.gethostbyname(host), int(port))))
    attempt("sent", lambda: connection.send(b"hello\n"))
    attempt("answer", lambda: answer(connection))


def answer(connection):
    if not connection.recv(64):
        raise OSError(errno.ECONNRESET, "the end")


def options(*below):
    """What only the owner of a network may set on a socket, and what would lead packets past rules and routes; or the same
    as the root of a user namespace of its own.
    """
    if below:
        enter_namespaces(NEWUSER, as_root=True)
    # asm-generic/socket.h, linux/in.h, linux/in6.h
    for name, family, level, option in [
        ("SO_MARK", socket.AF_INET, socket.SOL_SOCKET, 36),
        ("IP_TRANSPARENT", socket.AF_INET, socket.SOL_IP, 19),
        ("IPV6_TRANSPARENT", socket.AF_INET6, socket.IPPROTO_IPV6, 75),
        ("TCP_REPAIR", socket.AF_INET, socket.SOL_TCP, 19),
        ("SO_BINDTODEVICE", socket.AF_INET, socket.SOL_SOCKET, 25),
        ("SO_BINDTOIFINDEX", socket.AF_INET, socket.SOL_SOCKET, 62),
    ]:
        value = b"lo\0" if name == "SO_BINDTODEVICE" else struct.pack("=i", 1)
        connection = socket.socket(family)
        attempt(name, lambda: connection.setsockopt(level, option, value))


def protocols(address):
    """Sends something by each protocol of IP that there are sockets for."""
    for name, kind, protocol in [
        ("sctp", socket.SOCK_SEQPACKET, 132),
        ("sctp-stream", socket.SOCK_STREAM, 132),
        ("dccp", 6, 33),
        ("udplite", socket.SOCK_DGRAM, 136),
        ("ping", socket.SOCK_DGRAM, 1),
    ]:
        attempt(name, lambda: send_by(kind, protocol, address))


def send_by(kind, protocol, address):
    connection = socket.socket(socket.AF_INET, kind, protocol)
    connection.settimeout(20)
    connection.connect((address, 9))
    # An echo request, which the kernel completes, or as good as any other text.
    connection.send(b"\x08\0\0\0\0\0\0\1")


def listening(*ports):
    """Which of these ports of the host's can be seen, in each way there is to look."""
    ports = {int(port) for port in ports}
    seen = set()
    for name in ["tcp", "tcp6"]:
        with open("/proc/net/" + name) as file:
            seen |= {int(line.split()[1].rpartition(":")[2], 16) for line in file.readlines()[1:]}
    say("got: /proc" if ports & seen else "failed: /proc")
    say("got: diag" if ports & set(diagnosed()) else "failed: diag")


def diagnosed():
    """The listening TCP ports by NETLINK_SOCK_DIAG (sock_diag(7))."""
    for family in (socket.AF_INET, socket.AF_INET6):
        diag = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
        LISTEN, DUMP, DONE = 1 << 10, 0x301, 3
        request = struct.pack("=BBBBI48x", family, socket.IPPROTO_TCP, 0, 0, LISTEN)
        diag.send(struct.pack("=IHHII", 16 + len(request), 20, DUMP, 1, 0) + request)
        done = False
        while not done:
            answer = diag.recv(1 << 16)
            while answer:
                length, kind = struct.unpack_from("=IH", answer)
                done |= kind in (DONE, 2)
                if kind == 20:
                    yield struct.unpack_from(">H", answer, 16 + 4)[0]
                answer = answer[(length + 3) & ~3 :]


def take_ports(*ports):
    """Binds these ports, on which netbox listens, first or as well."""
    for port in ports:
        kind, number = port.split(":")
        for address in ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "::"]:
            one = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, KINDS[kind])
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            attempt(port, lambda: bind_and_listen(one, kind, (address, int(number))))


KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def bind_and_listen(one, kind, address):
    one.bind(address)
    if kind == "tcp":
        one.listen()


def other_network(host, port):
    """Makes a network of its own and uses that."""
    enter_namespaces(NEWUSER | NEWNET, as_root=True)
    os.system("ip link set lo up; ip link add stub0 type dummy; ip addr add 192.0.2.9/24 dev stub0; ip link set stub0 up; ip route add default dev stub0")
    connection = socket.socket()
    connection.settimeout(1)
    attempt("connected", lambda: connection.connect((host, int(port))))


def receive(path, host, port):
    """Takes a socket from whoever connects to `path`, connects it, and uses it."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    say("ready")
    peer, _ = server.accept()
    _, ancillary, _, _ = peer.recvmsg(1, socket.CMSG_SPACE(8))
    fresh, connected = array.array("i", ancillary[0][2])
    attempt("connected", lambda: socket.socket(fileno=fresh).connect((host, int(port))))
    given = socket.socket(fileno=connected)
    attempt("answer", lambda: (given.send(b"hello\n"), answer(given)))


if __name__ == "__main__":
    run(globals())
