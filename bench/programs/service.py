# SPDX-License-Identifier: Apache-2.0
"""service.py PORT: answers GET /N with a document as JSON, and keeps the newest 2,000 of them."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread

kept: OrderedDict[int, bytes] = OrderedDict()
served = count()


def document_of(n: int) -> bytes:
    """Return the document of a number."""
    items = [{"id": n * 40 + i, "name": f"item {i}", "tags": [f"a{n}", f"b{i}"]} for i in range(40)]
    return json.dumps({"n": n, "items": items}).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers requests; /quit ends the server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """Answers one request."""
        if self.path == "/quit":
            text = b""
            Thread(target=server.shutdown).start()
        else:
            n = next(served) % 5000
            text = kept.get(n) or document_of(n)
            kept[n] = text
            if len(kept) > 2000:
                kept.popitem(last=False)
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        # ab speaks HTTP/1.0, in which a connection is kept only by agreement.
        if self.headers.get("Connection", "").lower() == "keep-alive":
            self.send_header("Connection", "keep-alive")
            self.close_connection = False
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
server.daemon_threads = True
server.serve_forever()
