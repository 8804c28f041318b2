# SPDX-License-Identifier: Apache-2.0
"""Metrics of a program while it is recorded, for Prometheus (record --metrics)."""

from __future__ import annotations

import hashlib
import ipaddress
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING

from spanwise import _format
from spanwise.errors import InvalidError, SpanwiseError

if TYPE_CHECKING:
    from spanwise.recordings.live_view import LivePage
    from spanwise.recordings.sampled import Estimate

INTERVAL_S = 5.0
"""How often the recording is read; a scrape gets the latest figures."""
SITES = 20
_LABEL = 120
_PATH = "/metrics"
_CONTENT = "text/plain; version=0.0.4; charset=utf-8"
_LOCALHOST = "localhost"
_PORT_MAX = 65535
_REQUEST_S = 10


def parse_address(text: str, allow_remote: bool) -> tuple[str, int]:
    """Return the address and port of "ADDRESS:PORT", "[ADDRESS]:PORT" or "PORT".

    Raises:
        InvalidError: it is malformed, or other machines can reach it and may not.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == _LOCALHOST else host)
        number = int(port)
    except ValueError:
        number = -1
    if not 1 <= number <= _PORT_MAX or not port.isdigit():
        raise InvalidError(f"--metrics {text!r}: give ADDRESS:PORT, such as 127.0.0.1:9091")
    if not address.is_loopback and not allow_remote:
        raise InvalidError(
            f"--metrics {text!r}: other machines could read which functions the program has;"
            " give 127.0.0.1:PORT, or add --metrics-remote"
        )
    return str(address), number


class Metrics:
    """Serves the metrics of a program; `watch` updates them while it runs.

    Attributes:
        port: where it listens.
        trouble: why the updates ended before the program; "": they did not.
    """

    def __init__(self, host: str, port: int, sample_bytes: int) -> None:
        self._sample_bytes = sample_bytes
        self._text = ""
        self.trouble = ""
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            """Answers GET /metrics."""

            timeout = _REQUEST_S

            def do_GET(self) -> None:
                """Sends the latest metrics."""
                metrics._answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing."""

        class Server(ThreadingHTTPServer):
            """A server of the address's family."""

            address_family = AF_INET6 if ":" in host else AF_INET
            daemon_threads = True

        self._server = Server((host, port), Handler)
        self._is_local = ipaddress.ip_address(host).is_loopback
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def watch(self, child: subprocess.Popen[bytes], raw: Path, areas: Path) -> None:
        """Updates the metrics until the program ends. An error ends the updates alone."""
        from spanwise.recordings.live_view import LiveView  # noqa: PLC0415  brings numpy

        try:
            view = LiveView(child.pid, raw, areas, self._sample_bytes)
            while child.poll() is None:
                view.update()
                self._text = metrics_of(view.page(SITES))
                try:
                    child.wait(timeout=INTERVAL_S)
                except subprocess.TimeoutExpired:
                    continue
        except (OSError, ValueError, SpanwiseError) as error:
            self._text = ""
            self.trouble = f"--metrics ended: {error}"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        host = request.headers.get("Host", "").rpartition(":")[0] or request.headers.get("Host", "")
        if self._is_local and not _is_local_name(host):
            # A page of another site may have a name that leads to this machine (DNS rebinding).
            request.send_error(HTTPStatus.FORBIDDEN)
        elif request.path.partition("?")[0] != _PATH:
            request.send_error(HTTPStatus.NOT_FOUND)
        elif not self._text:
            request.send_error(HTTPStatus.SERVICE_UNAVAILABLE)
        else:
            data = self._text.encode()
            request.send_response(HTTPStatus.OK)
            request.send_header("Content-Type", _CONTENT)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)


def _is_local_name(host: str) -> bool:
    try:
        return (
            host == _LOCALHOST
            or ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
        )
    except ValueError:
        return False


@contextmanager
def serving(address: str, allow_remote: bool, sample_bytes: int) -> Iterator[Metrics]:
    """Yield a server at an address.

    Raises:
        InvalidError: as `parse_address`; or there is no sample to make estimates from.
        OSError: the system refuses the address.
    """
    if not sample_bytes:
        raise InvalidError("--metrics needs a sample: add --sample")
    host, port = parse_address(address, allow_remote)
    try:
        metrics = Metrics(host, port, sample_bytes)
    except OSError as error:
        raise OSError(error.errno, f"--metrics {address}: {error.strerror}") from None
    try:
        yield metrics
    finally:
        metrics.close()


# --- text -----------------------------------------------------------------------------------------


def metrics_of(page: LivePage) -> str:
    """Return a page in the text format of Prometheus. Estimates have their limits in low and high.

    A call site's `stack` differs from that of others with the same text, and stays the same.
    """
    sites = [
        (_label(row.site.names), row) for row in page.rows if row.site.names or row.site.id == 0
    ]
    lines = [
        *_samples("resident_bytes", "gauge", "RSS of the process", [("", page.rss_bytes)]),
        *_samples("sample_bytes", "gauge", "mean bytes between samples", [("", page.sample_bytes)]),
        *_samples("recorded_objects_total", "counter", "sampled objects", [("", page.recorded)]),
        *_estimates("live_bytes", "requested bytes of live objects", [("", page.requested)]),
        *_samples(
            "allocated_bytes_total",
            "counter",
            "allocated bytes, estimated",
            [("", round(page.allocated.value))],
        ),
        *_estimates(
            "site_live_bytes",
            f"the same of the {SITES} call sites with most",
            [(label, row.requested) for label, row in sites],
        ),
        *_samples(
            "site_allocated_bytes_total",
            "counter",
            "allocated bytes of these call sites, estimated",
            [(label, round(row.allocated.value)) for label, row in sites],
        ),
    ]
    return "\n".join([*lines, ""])


def _label(names: tuple[str, ...]) -> str:
    from spanwise.recordings.sites import Site, callers  # noqa: PLC0415  loaded by now

    (text,) = callers([Site(0, 0, 0, names, names, names)], _LABEL)
    stack = hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:12]
    return f'{{site="{_format.label_value(text)}",stack="{stack}"}}'


def _samples(name: str, kind: str, text: str, values: list[tuple[str, int]]) -> list[str]:
    head = [f"# HELP spanwise_{name} {text}", f"# TYPE spanwise_{name} {kind}"]
    return [*head, *(f"spanwise_{name}{label} {value}" for label, value in values)]


def _estimates(name: str, text: str, values: list[tuple[str, Estimate]]) -> list[str]:
    """Return the estimates, and the limits of their 95 % intervals."""
    each = [(label, (one.value, one.low, one.high)) for label, one in values]
    parts = (
        ("", ", estimated"),
        ("_low", ", lower limit (95 %)"),
        ("_high", ", upper limit (95 %)"),
    )
    return [
        line
        for i, (end, what) in enumerate(parts)
        for line in _samples(
            f"{name}{end}", "gauge", text + what, [(label, round(one[i])) for label, one in each]
        )
    ]
