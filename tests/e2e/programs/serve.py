"""python3 serve.py ADDRESS PORT COMMAND...: serves one page over HTTP while the command runs, and exits like it."""

import http.server
import socket
import subprocess
import sys
import threading


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"served inside\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET


# The socket listens from here on, so the command cannot come too early.
server = Server((sys.argv[1], int(sys.argv[2])), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.exit(subprocess.run(sys.argv[3:]).returncode)
