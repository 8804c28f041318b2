# SPDX-License-Identifier: Apache-2.0
"""Machine, compiler, commit and preset of a run."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from driver.tools import BenchError, captured


def _first_line(command: Sequence[str], cwd: Path) -> str:
    try:
        done = captured(command, cwd=cwd)
    except BenchError:
        return ""
    return done.stdout.splitlines()[0].strip() if done.returncode == 0 and done.stdout else ""


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    match = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def cmake_cache(build: Path) -> dict[str, str]:
    """The variables of a build directory's CMakeCache.txt; empty without one."""
    try:
        text = (build / "CMakeCache.txt").read_text(encoding="utf-8")
    except OSError:
        return {}
    return {m[1]: m[2] for m in re.finditer(r"^(\w+):\w+=(.*)$", text, re.MULTILINE)}


def provenance(root: Path, build: Path) -> dict[str, Any]:
    """Describe a run: date, machine, compiler, commit, build type and assertion grade."""
    cache = cmake_cache(build)
    commit = _first_line(["git", "rev-parse", "--short=12", "HEAD"], root) or "unknown"
    dirty = _first_line(["git", "status", "--porcelain", "--", "src", "include", "bench"], root)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
        "load": round(os.getloadavg()[0], 2),
        "compiler": _first_line([cache.get("CMAKE_C_COMPILER", "cc"), "--version"], root),
        "commit": commit + ("+changes" if dirty else ""),
        "build_type": cache.get("CMAKE_BUILD_TYPE", ""),
        "check": cache.get("SPANWISE_CHECK", ""),
    }


def one_line(about: Mapping[str, Any]) -> str:
    """Date, commit and machine in one line."""
    day = str(about["date"])[:10]
    return f"{day}, commit {about['commit']}, {about['cpu']}, {about['cpus']} CPUs"
