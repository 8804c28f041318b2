# SPDX-License-Identifier: Apache-2.0
"""How a run was made (machine, compiler, commit, preset, seed), and its raw results as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runner.contenders import Field
from runner.runs import Run
from runner.text import write_whole

SEED = 20261120  # of rows.h


def _first_line(command: Sequence[str], cwd: Path) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
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


def preset_name(cache: Mapping[str, str]) -> str:
    """The preset of CMakePresets.json that has this build type and assertion grade."""
    grade = cache.get("SPANWISE_CHECK", "1")
    if cache.get("SPANWISE_SANITIZE"):
        return "sanitized"
    if cache.get("CMAKE_BUILD_TYPE") == "Release":
        return {"0": "bare", "1": "release", "2": "hardened"}.get(grade, "release")
    return {"3": "stress"}.get(grade, "dev")


def provenance(root: Path, build: Path) -> dict[str, Any]:
    """Machine, compiler, commit, preset and seed of a run."""
    cache = cmake_cache(build)
    compiler = cache.get("CMAKE_C_COMPILER", "cc")
    commit = _first_line(["git", "rev-parse", "--short=12", "HEAD"], root) or "unknown"
    dirty = _first_line(["git", "status", "--porcelain", "--", "src", "include", "bench"], root)
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cpus": os.cpu_count(),
            "architecture": platform.machine(),
            "system": f"{platform.system()} {platform.release()}",
            "libc": " ".join(platform.libc_ver()),
            "load": os.getloadavg()[0],
        },
        "compiler": _first_line([compiler, "--version"], root),
        "commit": commit + ("+changes" if dirty else ""),
        "preset": preset_name(cache),
        "seed": SEED,
    }


def measured_on(about: Mapping[str, Any]) -> str:
    """Date, commit and machine in one line, for a picture; "" where figures were stored without.

    Args:
        about: as of `provenance`.
    """
    machine = about.get("machine")
    if machine is None:
        return ""
    return (
        f"{str(about['date'])[:10]}, commit {about['commit']}, {machine['cpu']},"
        f" {machine['cpus']} processors"
    )


def measured_here(build: Path) -> str:
    """As `measured_on`, of what was measured just now."""
    return measured_on(provenance(Path(__file__).resolve().parents[2], build))


def raw_results(run: Run, field: Field, about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that was measured, failures included."""
    return {
        **about,
        "interrupted": run.interrupted,
        "contenders": [
            {"name": c.name, "basis": c.basis, "version": c.version, "policy": c.policy}
            for c in field.contenders
        ],
        "missing": field.missing,
        "repetitions": [
            [
                {
                    "bench": bench,
                    "name": name,
                    "basis": basis,
                    "options": options,
                    "iterations": result.iterations,
                    "values": result.values,
                    "error": result.error,
                }
                for (bench, name, basis, options), result in repetition.items()
            ]
            for repetition in run.repetitions
        ],
    }


def results_path(folder: Path, about: Mapping[str, Any], kind: str = "") -> Path:
    """Where the results of a run go: [KIND]DATE-COMMIT.json in the folder."""
    stamp = re.sub(r"[^0-9T]", "", str(about["date"])[:19])
    return folder / f"{kind}{stamp}-{about['commit']}.json"


def write_results(folder: Path, raw: Mapping[str, Any]) -> Path:
    """Writes DATE-COMMIT.json into the folder and returns its path."""
    path = results_path(folder, raw)
    write_whole(path, json.dumps(raw, indent=1) + "\n")
    return path
