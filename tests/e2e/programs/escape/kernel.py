"""Attempts to get out by the kernel's own facilities: python3 kernel.py ATTEMPT ARGUMENT..."""

import ctypes
import os
import socket
import struct
import subprocess
import time

from calls import LIBC, NEWNET, NEWNS, NEWUSER, attempt, check, enter_namespaces, run, say, syscall

SESSION = -3
JOIN, SEARCH, READ = 1, 10, 11
KEY, MAILBOX = b"netbox-e2e-key", b"netbox-e2e-mailbox"
TEXT = b"for the host's eyes only"


def with_keys(*command):
    """Runs the command with a session keyring that holds a key of the host's, and looks into its mailbox after that."""
    syscall("keyctl", JOIN, 0)
    syscall("add_key", b"user", KEY, TEXT, len(TEXT), SESSION)
    subprocess.run(command)
    attempt("mail", lambda: syscall("keyctl", SEARCH, SESSION, b"user", MAILBOX, 0))


def keys():
    """The session's keyring, and the kernel's own resolver, which starts a program of the host's."""
    found = attempt("found", lambda: syscall("keyctl", SEARCH, SESSION, b"user", KEY, 0))
    attempt("requested", lambda: syscall("request_key", b"user", KEY, 0, 0))
    buffer = ctypes.create_string_buffer(64)
    if found:
        attempt("read", lambda: syscall("keyctl", READ, found, buffer, 64))
    attempt("put", lambda: syscall("add_key", b"user", MAILBOX, TEXT, len(TEXT), SESSION))
    attempt("looked up", lambda: syscall("request_key", b"dns_resolver", b"a-secret.example.com", b"", 0))


SIZE = 4096


def queue_of(key):
    return b"/netbox-e2e-" + key.encode()


def with_memory(key, *command):
    """Runs the command beside shared memory, a semaphore and message queues of the host's (sysvipc(7), mq_overview(7)),
    which all have this number.
    """
    CREATE = 0o1600
    memory = check(LIBC.shmget(int(key), SIZE, CREATE))
    semaphore = check(LIBC.semget(int(key), 1, CREATE))
    messages = check(LIBC.msgget(int(key), CREATE))
    queue = check(LIBC.mq_open(queue_of(key), os.O_CREAT | os.O_RDWR, 0o600, None))
    try:
        subprocess.run(command)
    finally:
        LIBC.shmctl(memory, 0, None)
        LIBC.semctl(semaphore, 0, 0)
        LIBC.msgctl(messages, 0, None)
        LIBC.mq_unlink(queue_of(key))
        os.close(queue)


def memory(key):
    attempt("shared memory", lambda: check(LIBC.shmget(int(key), SIZE, 0)))
    attempt("a semaphore", lambda: check(LIBC.semget(int(key), 1, 0)))
    attempt("messages", lambda: check(LIBC.msgget(int(key), 0)))
    attempt("a queue", lambda: check(LIBC.mq_open(queue_of(key), os.O_RDWR)))


def calls():
    """System calls that nobody under confinement needs, each so that it would do no harm."""
    buffer = ctypes.create_string_buffer(128)
    MAP_OF_ONE = struct.pack("=5I", 2, 4, 4, 1, 0)
    attempt("bpf", lambda: syscall("bpf", 0, ctypes.create_string_buffer(MAP_OF_ONE, 128), 128))
    attempt("userfaultfd", lambda: syscall("userfaultfd", 1))
    counter = ctypes.create_string_buffer(b"\1\0\0\0\x80\0\0\0" + bytes(32) + b"\x60", 128)
    attempt("perf_event_open", lambda: syscall("perf_event_open", counter, 0, -1, -1, 0))
    attempt("kexec_load", lambda: syscall("kexec_load", 0, 17, 0, 0))
    attempt("kexec_file_load", lambda: syscall("kexec_file_load", -1, -1, 0, 0, 0))
    attempt("init_module", lambda: syscall("init_module", buffer, 128, b""))
    attempt("finit_module", lambda: syscall("finit_module", -1, b"", 0))
    attempt("delete_module", lambda: syscall("delete_module", b"netbox-e2e-no-such-module", os.O_NONBLOCK))
    attempt("open_by_handle_at", lambda: by_handle())


def by_handle():
    """Opens the root folder by its handle, which is not looked up in any mount's view of the file system."""
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0), 136)
    mount = ctypes.c_int()
    check(LIBC.name_to_handle_at(-100, b"/", handle, ctypes.byref(mount), 0))
    folder = os.open("/", os.O_RDONLY)
    os.close(syscall("open_by_handle_at", folder, handle, os.O_PATH))


def rules(*below):
    """Deletes every rule of the packet filter, takes a link down and adds an address, as who one is; or as the root of a
    user namespace of its own.
    """
    if below:
        enter_namespaces(NEWUSER | NEWNS, as_root=True)
    attempt("the rules", delete_rules)
    attempt("the link", lambda: route(16, struct.pack("=BxHiII", 0, 0, 1, 0, 1)))
    address = struct.pack("=BBBBI", 2, 24, 0, 0, 1) + struct.pack("=HH4s", 8, 2, socket.inet_aton("203.0.113.9"))
    attempt("an address", lambda: route(20, address, 0x600))


def delete_rules():
    """NFT_MSG_DELTABLE of every family, as a batch (linux/netfilter/nf_tables.h)."""
    BEGIN, END, DELETE_TABLE, REQUEST, ACK = 16, 17, 0x0A02, 1, 4
    netfilter = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)
    netfilter.settimeout(20)
    batch = [(BEGIN, REQUEST, b"\0\0\0\x0a"), (DELETE_TABLE, REQUEST | ACK, b"\0\0\0\0"), (END, REQUEST, b"\0\0\0\x0a")]
    netfilter.send(b"".join(message(kind, flags, body, at) for at, (kind, flags, body) in enumerate(batch)))
    acknowledged(netfilter)


def route(kind, body, flags=0):
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    link.settimeout(20)
    link.send(message(kind, 5 | flags, body, 1))
    acknowledged(link)


def message(kind, flags, body, sequence):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def acknowledged(netlink):
    _, kind, _, _, _, code = struct.unpack_from("=IHHIIi", netlink.recv(4096))
    assert kind == 2, kind
    if code:
        raise OSError(-code, os.strerror(-code))


def settings():
    """Files by which the kernel is told what to start, and what to do at once. They are opened and nothing is written."""
    for path in [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hostname",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/sys/power/state",
        "/sys/kernel/uevent_helper",
        "/sys/module/kernel/parameters/panic",
    ]:
        if os.path.exists(path):
            attempt(path, lambda: os.close(os.open(path, os.O_WRONLY)))


def privileges():
    """What takes a capability of the machine's, each so that it changes nothing."""
    name = socket.gethostname().encode()
    attempt("the name of the host", lambda: check(LIBC.sethostname(name, len(name))))
    attempt("the kernel's messages", lambda: check(LIBC.klogctl(3, ctypes.create_string_buffer(64), 64)))
    attempt("a higher priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -1))
    attempt("the clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME)))


if __name__ == "__main__":
    run(globals())
