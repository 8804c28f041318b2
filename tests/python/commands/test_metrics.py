# SPDX-License-Identifier: Apache-2.0
"""record --metrics: figures for Prometheus against counts, and who may read them."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.commands._metrics import Metrics, metrics_of, parse_address
from spanwise.recordings.live_view import LivePage, LiveRow
from spanwise.recordings.sampled import Estimate
from spanwise.recordings.sites import Site

from tests.python.helpers import compiled, needs_recorder, spanwise

PROGRAM = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) void *keep(void) { return malloc(1 << 20); }
int main(int argc, char **argv) {
    (void)argc;
    for (int i = 0; i < 30; i++) if (keep() == NULL) return 1;
    while (access(argv[1], F_OK) != 0) usleep(10000);
    return 0;
}
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def read(port: int, path: str = "/metrics", host: str | None = None) -> tuple[int, str]:
    """Return the status and the text of an answer."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}")
    if host is not None:
        request.add_header("Host", host)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def recorded(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    program = compiled(folder, PROGRAM, "-fno-builtin", name="keeper.c")
    words = ("record", "--sample", "4K", f"--metrics=127.0.0.1:{port}", "-o", "a.swt", "--")
    command = [sys.executable, "-m", "spanwise", *words, str(program), "end"]
    done = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    late = threading.Timer(60, done.kill)
    late.start()
    try:
        yield done
    finally:
        late.cancel()
        if done.poll() is None:
            done.terminate()
            done.communicate()


@needs_recorder()
def test_a_program_is_scraped(tmp_path: Path) -> None:
    """An object of 1 MiB is recorded with a probability of 1 - e^-256, so figures are exact."""
    port, text = free_port(), ""
    with recorded(tmp_path, port) as done:
        while 'site="keep in keeper < main' not in text:
            assert done.poll() is None
            try:
                _, text = read(port)
            except OSError:
                time.sleep(0.05)
        assert read(port, "/")[0] == read(port, "/metrics/x")[0] == 404
        assert read(port, host="evil.example")[0] == read(port, host=f"a.b:{port}")[0] == 403
        assert read(port, host=f"localhost:{port}")[0] == read(port, host="127.0.0.1")[0] == 200
        (tmp_path / "end").touch()
        _, said = done.communicate()
    assert done.returncode == 0, said
    line = re.search(r'^spanwise_site_live_bytes\{site="keep in keeper .*\} (\d+)$', text, re.M)
    assert line is not None and int(line[1]) == 30 << 20
    rss = re.search(r"^spanwise_resident_bytes (\d+)$", text, re.M)
    assert rss is not None and int(rss[1]) > 0
    assert "spanwise_sample_bytes 4096\n" in text and text.endswith("\n")
    assert_format(text)
    assert sw.SampledRecording.open(tmp_path / "a.swt").gaps == []


def assert_format(text: str) -> None:
    """Each metric has HELP and TYPE once, before its samples, and no sample comes twice."""
    kinds: dict[str, str] = {}
    seen = set()
    for line in text.splitlines():
        head = re.fullmatch(r"# (HELP|TYPE) (spanwise_[a-z_]+) (.+)", line)
        if head is not None:
            assert head[1] == "HELP" or head[3] in ("gauge", "counter")
            assert (head[2] in kinds) == (head[1] == "TYPE")
            kinds[head[2]] = head[3]
            continue
        sample = re.fullmatch(
            r'(spanwise_[a-z_]+)(\{\w+="(?:[^"\\]|\\.)*"(?:,\w+="[^"]*")*\})? -?\d+', line
        )
        assert sample is not None, line
        assert sample[1] == list(kinds)[-1] and line.rpartition(" ")[0] not in seen
        assert (kinds[sample[1]] == "counter") == sample[1].endswith("_total")
        seen.add(line.rpartition(" ")[0])


def test_the_text_by_hand() -> None:
    one = Estimate(10.4, 5.0, 20.6)
    rows = tuple(
        LiveRow(Site(i, 0, 0, names, names), 5, one, one, one)
        for i, names in enumerate([('f("x\\y")', "a"), ("g (a.c:1)", "b"), ("g (a.c:1)", "c")])
    )
    rows += tuple(LiveRow(Site(i, 0, 0, ("not named yet",)), 5, one, one, one) for i in (8, 9))
    rows += (LiveRow(Site(0, 0, 0, ()), 5, one, one, one),)
    page = LivePage(1.0, 1.0, 4096, 0, 512, 15, 15, one, one, one, one, rows, 0, 0, one)
    text = metrics_of(page)
    assert_format(text)
    assert "\nspanwise_live_bytes 10\n" in text and "\nspanwise_live_bytes_high 21\n" in text
    assert "\nspanwise_allocated_bytes_total 10\n" in text
    assert text.count('\nspanwise_site_live_bytes_low{site="g (a.c:1) < ') == 2
    assert text.count('{site="unknown",') == 4 and "not named" not in text
    assert 'site="f(\\"x\\\\y\\") < a"' in text
    assert_format(
        metrics_of(LivePage(1.0, 1.0, 0, 0, 512, 0, 0, one, one, one, one, (), 0, 0, one))
    )


def test_an_update_that_fails_ends_the_metrics_alone(tmp_path: Path) -> None:
    (tmp_path / "a.swt").write_bytes(bytes(200))
    metrics = Metrics("127.0.0.1", 0, 4096)
    try:
        assert read(metrics.port)[0] == 503
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            metrics.watch(child, tmp_path / "a.swt", tmp_path)
            assert child.poll() is None
        assert metrics.trouble == "--metrics ended: a.swt: byte 64: no block"
        assert read(metrics.port)[0] == 503
    finally:
        metrics.close()
    with pytest.raises(OSError, match="refused"):
        read(metrics.port)


# --- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("127.0.0.1:9091", ("127.0.0.1", 9091)),
        ("localhost:1", ("127.0.0.1", 1)),
        ("65535", ("127.0.0.1", 65535)),
        (":80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
        ("127.9.9.9:80", ("127.9.9.9", 80)),
    ],
)
def test_loopback_addresses(text: str, wanted: tuple[str, int]) -> None:
    assert parse_address(text, allow_remote=False) == wanted


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "192.168.1.7:80", "8.8.8.8:80"])
def test_other_addresses_must_be_allowed(text: str) -> None:
    with pytest.raises(sw.InvalidError, match="add --metrics-remote"):
        parse_address(text, allow_remote=False)
    assert parse_address(text, allow_remote=True)[1] == 80


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "1.2.3:80", "host.example:80", "a", ":-1"),
        *("127.0.0.1:65536", "127.0.0.1:8O", "127.0.0.1: 80", "127.0.0.1:+80"),
    ],
)
def test_malformed_addresses(text: str) -> None:
    with pytest.raises(sw.InvalidError, match="give ADDRESS:PORT"):
        parse_address(text, allow_remote=True)


@needs_recorder()
def test_what_the_command_refuses(tmp_path: Path) -> None:
    """Nothing is run, and nothing is written."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        used = f"127.0.0.1:{taken.getsockname()[1]}"
        for words, said in (
            (("--metrics", "127.0.0.1:9"), "--metrics needs a sample: add --sample"),
            (("--sample", "4K", "--metrics", "0.0.0.0:80"), "add --metrics-remote"),
            (("--sample", "4K", "--metrics", used), f"--metrics {used}: Address already in use"),
        ):
            done = spanwise("record", *words, "--", "touch", "ran", cwd=tmp_path)
            assert done.returncode == 2 and said in done.stderr, done.stderr
            assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
