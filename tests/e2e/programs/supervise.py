"""What systemd does for the netbox service: it holds the sockets, and is told how the service is.

supervise.py FOLDER URL NETBOX FLAGS...: starts the service on sockets of its own, asks for URL through it, ends it, connects while it
is away, and starts it again.
"""

import os
import signal
import socket
import sys

folder, url, command = sys.argv[1], sys.argv[2], sys.argv[3:]
os.mkdir(folder, 0o700)

proxy = socket.create_server(("127.0.0.1", 0))
control = socket.socket(socket.AF_UNIX)
control.bind(os.path.join(folder, "control.sock"))
control.listen()
notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notified.bind(os.path.join(folder, "notify"))
notified.settimeout(60)


def start():
    sockets = [os.dup(proxy.fileno()), os.dup(control.fileno())]

    def hand_over():
        for number, own in enumerate(sockets):
            os.dup2(own, 3 + number)
        os.environ["LISTEN_PID"] = str(os.getpid())

    environment = {
        "LISTEN_FDS": "2",
        "LISTEN_FDNAMES": "proxy:control",
        "NOTIFY_SOCKET": os.path.join(folder, "notify"),
        "WATCHDOG_USEC": "400000",
    }
    os.environ.update(environment)
    # The child's own process number is known in the child alone, so its environment is made there.
    pid = os.fork()
    if pid == 0:
        hand_over()
        os.execv(command[0], command)
    for own in sockets:
        os.close(own)
    return pid


def wait_for(text):
    while True:
        told = notified.recv(4096).decode()
        if text in told.split("\n"):
            return told


def ask(connection):
    connection.sendall(f"GET {url} HTTP/1.1\r\nHost: {url.split('/')[2]}\r\nConnection: close\r\n\r\n".encode())


def answer(connection):
    connection.settimeout(60)
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received.split(b"\r\n")[0].decode()


def connect():
    return socket.create_connection(proxy.getsockname())


first = start()
print(wait_for("READY=1"), flush=True)
connection = connect()
ask(connection)
print("first:", answer(connection), flush=True)
print(wait_for("WATCHDOG=1").split("\n")[0], flush=True)
os.kill(first, signal.SIGHUP)
reloading = wait_for("RELOADING=1")
assert int(reloading.split("MONOTONIC_USEC=")[1]) > 0, reloading
wait_for("READY=1")
os.kill(first, signal.SIGTERM)
print(wait_for("STOPPING=1").split("\n")[0], flush=True)
_, status = os.waitpid(first, 0)
print("ended:", os.waitstatus_to_exitcode(status), flush=True)
# Nobody serves now, and nobody is refused.
waiting = connect()
ask(waiting)
client = socket.socket(socket.AF_UNIX)
client.connect(os.path.join(folder, "control.sock"))
client.close()
second = start()
wait_for("READY=1")
print("waited:", answer(waiting), flush=True)
os.kill(second, signal.SIGTERM)
_, status = os.waitpid(second, 0)
print("ended:", os.waitstatus_to_exitcode(status), flush=True)
