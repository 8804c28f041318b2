# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the preloaded malloc: the installed library, programs to run under it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from spanwise import _lib
from spanwise.measure.running import MALLOC_LIBRARY

HERE = Path(__file__).parent
CHECKS = HERE.parent / "unit"
"""Where check.h is."""
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")


class Preload:
    """Runs programs with the preloaded malloc preloaded."""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.library = _lib.native_library(MALLOC_LIBRARY)

    def program(self, source: str) -> Path:
        """Compiles a source of this folder, unless that was done already."""
        out = self.build / Path(source).stem
        if out.exists():
            return out
        is_cxx = source.endswith(".cpp")
        if is_cxx and shutil.which(CXX) is None:
            pytest.skip(f"{CXX} is not installed")
        compiler = [CXX, "-std=c++17"] if is_cxx else [CC, "-std=gnu11"]
        # Optimisers may remove an allocation that is not used.
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fno-builtin", f"-I{CHECKS}"]
        subprocess.run(
            [*compiler, *flags, HERE / source, "-o", out, "-lpthread", "-ldl"], check=True
        )
        return out

    def run(
        self,
        command: Sequence[Any],
        more: Mapping[str, str] | None = None,
        *,
        preload: bool = True,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command; `variables` and `more` are those of the library, without SPANWISE_."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith("SPANWISE_")}
        named = {f"SPANWISE_{name}": value for name, value in {**variables, **(more or {})}.items()}
        preloaded = {"LD_PRELOAD": str(self.library)} if preload else {}
        return subprocess.run(
            command,
            env={**clean, **preloaded, **named},
            cwd=cwd,
            pass_fds=pass_fds,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
