# SPDX-License-Identifier: Apache-2.0
"""For all tests: children can be ended by signals; who shares a fixture shares a worker."""

from __future__ import annotations

import gc
import importlib
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
# What shares something that takes long to make (an installation, a wheel, compiled programs) is run
# by one worker: all that begins like one of a row together, and of anything else a file by itself.
WHEEL_AND_PREFIX = ("consumers", "packages", "readme")
TOGETHER = {
    "install": tuple(f"tests/install/test_{name}.py" for name in WHEEL_AND_PREFIX),
    "preloaded": ("tests/preload/", "tests/recorder/"),
}

os.environ.pop("COLUMNS", None)  # a worker has 80, and tables would be cut


def group_of(node_id: str) -> str:
    """The group of tests that one worker runs, by a test's node id (`file::name`)."""
    file = node_id.split("::", 1)[0]
    for group, places in TOGETHER.items():
        if file.startswith(places):
            return group
    return file


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The recorder, and a folder for the programs that it records."""
    tools = importlib.import_module("tests.recorder.tools")
    return tools.Recorder(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="session")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The malloc to preload, and a folder for the programs that run under it."""
    tools = importlib.import_module("tests.preload.tools")
    return tools.Preload(tmp_path_factory.mktemp("preload"))


def pytest_configure() -> None:
    """A shell's background jobs ignore SIGINT, what nohup starts SIGHUP; children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was made up to now stays: no collection of Python's looks at it again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups that have a slow test begin first, so that no worker waits for another at the end."""
    if sys.platform != "linux" or shutil.which(os.environ.get("CC", "cc")) is None:
        for item in items:
            if group_of(item.nodeid) == "preloaded":
                item.add_marker(pytest.mark.skip(reason="needs Linux and a C compiler"))
    slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: group_of(item.nodeid) not in slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of `-n 3`: whole groups go to workers, in the order of collection.

    A scheduler of our own, since marks of groups reach pytest-xdist's through names of tests, which
    pytest 9.2 no longer changes: each worker then made everything that tests share.
    """
    scheduler = importlib.import_module("xdist.scheduler")

    class Groups(scheduler.LoadScopeScheduling):  # type: ignore[misc, name-defined]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False
    return Groups(config, log)
