"""A network client that says exactly what happened to it, in one word a line: python3 probe.py WHAT ARGUMENT...

Its words: `connected`, `answer: TEXT`, `end`, `reset`, `failed: ERRNO`, `timeout`. It uses the plain socket calls of
the operating system and knows of no proxy.
"""

import base64
import errno
import hashlib
import os
import socket
import ssl
import struct
import sys

PATIENCE = 20


def say(word):
    print(word, flush=True)


def connect(host, port):
    """Tries every address, as clients do; says which error the last one gave."""
    error = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = socket.socket(family, kind, protocol)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(address)
            say("connected")
            return connection
        except OSError as failure:
            error = failure
            connection.close()
    raise error


def receive(connection):
    """The next bytes, or None at the end."""
    return connection.recv(65536) or None


def show(received):
    say("end" if received is None else "answer: " + received.decode("utf-8", "backslashreplace").strip())


def tcp(host, port, *texts):
    """Sends each text as a line and waits for an answer to it. Without a text: waits for what the far side says."""
    with connect(host, port) as connection:
        for text in texts or [None]:
            if text is not None:
                connection.sendall(text.encode().decode("unicode_escape").encode("latin-1") + b"\n")
            show(receive(connection))


def half_close(host, port, count):
    """Sends many bytes, ends its own direction, and waits for the answer."""
    with connect(host, port) as connection:
        connection.sendall(b"x" * int(count))
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := receive(connection):
            answer += received
        show(answer or None)


def tls(host, port, server_name):
    """Sends a ClientHello and shows the first bytes that come back, as hexadecimal digits."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    session = context.wrap_bio(incoming, outgoing, server_hostname=server_name or None)
    try:
        session.do_handshake()
    except ssl.SSLWantReadError:
        pass
    with connect(host, port) as connection:
        connection.sendall(outgoing.read())
        received = receive(connection)
        say("end" if received is None else "answer: " + received[:7].hex())


def udp(host, port, text):
    """Sends a datagram; an answer is the same text."""
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(PATIENCE)
            connection.sendto(text.encode(), address)
            show(connection.recvfrom(2048)[0])
            return


def udp_loopback(host):
    """Sends a datagram from one socket of its own to another."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client:
        server.settimeout(PATIENCE)
        server.bind((host, 0))
        client.sendto(b"to itself", server.getsockname())
        show(server.recvfrom(2048)[0])


def abstract(name):
    """Connects to a unix socket that has a name outside of the file system."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + name)
        say("connected")


def lookup(name):
    """The addresses that the system's resolver knows for a name."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror as failure:
        known = {socket.EAI_NONAME: "EAI_NONAME", socket.EAI_NODATA: "EAI_NODATA", socket.EAI_AGAIN: "EAI_AGAIN"}
        say("failed: " + known.get(failure.errno, str(failure.errno)))
        return
    for address in found:
        say("address: " + address[4][0])


def resolve(server, transport, kind, name):
    """Asks a name server of its own choice. Returns and says what it answers."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    number = {"A": 1, "TXT": 16, "AAAA": 28, "HTTPS": 65}[kind]
    query = struct.pack(">HHHHHH", 0x4E42, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", number, 1)
    if transport == "udp":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(PATIENCE)
            connection.connect((server, 53))
            connection.send(query)
            reply = connection.recv(4096)
    else:
        with socket.create_connection((server, 53), PATIENCE) as connection:
            connection.sendall(struct.pack(">H", len(query)) + query)
            stream = connection.makefile("rb")
            reply = stream.read(struct.unpack(">H", stream.read(2))[0])
    assert reply[:2] == query[:2], "an answer to another question"
    say("rcode: %d" % (reply[3] & 15))
    records, at = struct.unpack(">H", reply[6:8])[0], len(query)
    addresses = []
    for _ in range(records):
        at += 2 if reply[at] >= 0xC0 else reply.index(b"\0", at) + 1 - at
        found, _, _, length = struct.unpack(">HHIH", reply[at : at + 10])
        data = reply[at + 10 : at + 10 + length]
        at += 10 + length
        if found in (1, 28):
            addresses.append(socket.inet_ntop(socket.AF_INET if found == 1 else socket.AF_INET6, data))
            say("address: " + addresses[-1])
        elif found == 16:
            say("text: " + data[1:].decode())
    return addresses


def own_resolver(server, transport, name):
    """Asks a name server of its own choice for a name, connects to what it said, and fetches a page."""
    address = resolve(server, transport, "A", name)[0]
    with connect(address, 80) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: " + name.encode() + b"\r\nConnection: close\r\n\r\n")
        show(connection.makefile("rb").read())


def websocket(host, port, message):
    """Opens a websocket, sends a message, and waits for it to come back."""
    key = base64.b64encode(os.urandom(16))
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    with connect(host, port) as connection:
        connection.sendall(
            b"GET /socket HTTP/1.1\r\nHost: " + host.encode() + b"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + key + b"\r\n\r\n"
        )
        stream = connection.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += stream.readline()
        say("upgraded" if accept in head else "answer: " + head.decode())
        mask, payload = os.urandom(4), message.encode()
        masked = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
        connection.sendall(bytes([0x81, 0x80 | len(payload)]) + mask + masked)
        length = stream.read(2)[1]
        show(stream.read(length))


WHAT = {
    "tcp": tcp,
    "half-close": half_close,
    "tls": tls,
    "udp": udp,
    "udp-loopback": udp_loopback,
    "abstract": abstract,
    "lookup": lookup,
    "resolve": resolve,
    "own-resolver": own_resolver,
    "websocket": websocket,
}

try:
    WHAT[sys.argv[1]](*sys.argv[2:])
except ConnectionResetError:
    say("reset")
except TimeoutError:
    say("timeout")
except OSError as failure:
    say("failed: " + errno.errorcode.get(failure.errno, str(failure)))
