# SPDX-License-Identifier: Apache-2.0
"""Executors by name: of this machine, or a cluster of Dask."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from spanwise.commands._common import suggestion
from spanwise.errors import InvalidError, UnsupportedError


def add_executor_option(parser: argparse.ArgumentParser, default: str) -> None:
    """`--executor` and `--workers`; `default` is what runs the work if nothing is asked for."""
    parser.add_argument(
        "--executor",
        default=default,
        metavar="E",
        help=f"{default}, processes, dask (a cluster on this machine) or dask:tcp://HOST:PORT (its"
        f" scheduler) [{default}]",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help=f"{'threads or ' if default == 'threads' else ''}processes [one per processor]",
    )


def check_executor(name: str, default: str) -> None:
    """Refuses, before the work, a name that no executor has."""
    known = (default, "processes", "dask")
    kind, _, address = name.partition(":")
    if kind in known and (kind == "dask" or not address):
        return
    raise InvalidError(
        f"--executor {name}: give {known[0]}, {known[1]}, dask or dask:tcp://HOST:PORT"
        f"{suggestion(kind, known)}"
    )


@contextmanager
def dask_executor(name: str, workers: int | None) -> Iterator[Any]:
    """The executor of a cluster; its client lives as long as the work."""
    address = name.partition(":")[2]
    try:
        distributed = importlib.import_module("distributed")
    except ImportError:
        raise UnsupportedError(
            "executor dask: Dask is not installed; pip install 'spanwise[cluster]'"
        ) from None
    try:
        client = (
            distributed.Client(address, timeout=10)
            if address
            else distributed.Client(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
            )
        )
    except (OSError, ValueError) as error:
        raise InvalidError(f"executor {name}: no scheduler answers ({error})") from None
    with client:
        yield client.get_executor()


@contextmanager
def executor_of(name: str, workers: int | None) -> Iterator[Any]:
    """The executor of a name, or None if the work runs in this process."""
    if name.startswith("dask"):
        with dask_executor(name, workers) as executor:
            yield executor
    elif name == "processes":
        if workers is not None and workers < 1:
            raise InvalidError(f"workers {workers}: give at least 1")
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as executor:
            yield executor
    else:
        yield None
