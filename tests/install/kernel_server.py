# SPDX-License-Identifier: Apache-2.0
"""Runs notebook kernels as forks of one process that has already imported their modules.

A kernel spends seconds on imports before its first cell. Each fork has all of its state to itself,
as a fresh kernel has: the imported modules are as they were when nothing had run yet.

    python kernel_server.py SOCKET                the server; it ends when its standard input does
    python kernel_server.py SOCKET FILE OPTIONS   what Jupyter starts as a kernel, with a connection
                                                  file: asks for a fork, and lives until that ends
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

LENGTH_BYTES = 8


def ask(place: str, words: list[str]) -> None:
    """Request a kernel with this process's folder and environment; return when it has ended."""
    by_readme = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ)}
    text = json.dumps(by_readme).encode()
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(place)
        socket.send_fds(asked, [len(text).to_bytes(LENGTH_BYTES, "big")], [1, 2])
        asked.sendall(text)
        asked.recv(1)  # nothing is sent; the end of the kernel closes it


def serve(place: str) -> None:
    """Fork a kernel for each request."""
    _import_what_notebooks_do()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # kernels are not waited for
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place)
        server.listen()
        print("ready", flush=True)
        awaited: list[Any] = [server, 0]
        while 0 not in select.select(awaited, [], [])[0]:
            asker, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _be_kernel(asker)
            asker.close()


def _import_what_notebooks_do() -> None:
    # Not pyplot: it would take the backend of this process.
    import ipykernel.ipkernel  # noqa: PLC0415
    import ipykernel.kernelapp  # noqa: F401, PLC0415
    import matplotlib.backends.backend_agg  # noqa: PLC0415
    import matplotlib.figure  # noqa: F401, PLC0415
    import spanwise  # noqa: PLC0415

    for name in spanwise.__all__:  # each name loads its module at its first use
        getattr(spanwise, name)


def _be_kernel(asker: socket.socket) -> None:
    """Become the requested kernel, in the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, outputs, *_ = socket.recv_fds(asker, LENGTH_BYTES, 2)
    left, text = int.from_bytes(head, "big"), b""
    while len(text) < left:
        text += asker.recv(left - len(text))
    by_readme = json.loads(text)
    for number, opened in enumerate([os.open(os.devnull, os.O_RDONLY), *outputs]):
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(by_readme["environment"])
    os.chdir(by_readme["folder"])
    threading.Thread(target=_end_with, args=(asker,), daemon=True).start()

    import matplotlib as mpl  # noqa: PLC0415
    from ipykernel.kernelapp import IPKernelApp  # noqa: PLC0415

    mpl.rcParams["backend"] = "module://matplotlib_inline.backend_inline"
    IPKernelApp.launch_instance(argv=["-f", *by_readme["words"]], parent_handle=1)
    os._exit(0)


def _end_with(asker: socket.socket) -> None:
    """End with the process that Jupyter started and will end."""
    asker.recv(1)
    os._exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        ask(sys.argv[1], sys.argv[2:])
    else:
        serve(sys.argv[1])
