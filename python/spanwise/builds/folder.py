# SPDX-License-Identifier: Apache-2.0
"""The folder that a build made: what is in it, and programs on its preloaded malloc."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanwise import errors
from spanwise.results.files import READING_ERRORS, is_text
from spanwise.results.rows import Result
from spanwise.tables.table import SizeClassTable

STAMP = "build.json"


@dataclass(frozen=True, eq=False)
class Build(Result):
    """A folder that `build` made.

    Attributes:
        folder: lib/ (libspanwise.a, libspanwise.so, libspanwise-malloc.so), include/, gen/ (the
            generated C), table.json and build.json.
        stamp: content of build.json: table, compiler, flags, versions, proofs.
    """

    folder: Path
    stamp: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Build:
        """A build that was made before.

        Raises:
            InvalidError: the folder is no build.
        """
        place = Path(folder)
        try:
            stamp = json.loads((place / STAMP).read_text(encoding="utf-8"))
            named = [stamp["table"][key] for key in ("name", "hash")]
        except (OSError, *READING_ERRORS):
            named = [None]
        if not all(map(is_text, named)):
            raise errors.InvalidError(f"{place}: is no folder that `spanwise build` made")
        return cls(place.absolute(), stamp)

    @property
    def table(self) -> SizeClassTable:
        """The default table of the build."""
        return SizeClassTable.from_json(self.folder / "table.json")

    @property
    def library(self) -> Path:
        """libspanwise.so; the archive is beside it, the headers are in `include`."""
        return self.folder / "lib/libspanwise.so"

    @property
    def archive(self) -> Path:
        """libspanwise.a; link with the words of stamp["link"]."""
        return self.folder / "lib/libspanwise.a"

    @property
    def include(self) -> Path:
        """The folder for -I."""
        return self.folder / "include"

    @property
    def malloc_library(self) -> Path:
        """libspanwise-malloc.so, for LD_PRELOAD.

        Raises:
            UnsupportedError: it was built without one.
        """
        path = self.folder / "lib/libspanwise-malloc.so"
        if not path.is_file():
            raise errors.UnsupportedError(f"{self.folder}: was built without the preloaded malloc")
        return path

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a program on the preloaded malloc.

        Args:
            argv: program and arguments.
            env: its environment; None: that of this process.
            options: as of `subprocess.run`.

        Raises:
            UnsupportedError: there is no preloaded malloc. OSError: the program does not start.
        """
        base = dict(os.environ if env is None else env)
        preload = ":".join(filter(None, (str(self.malloc_library), base.get("LD_PRELOAD"))))
        return subprocess.run(
            list(argv), env={**base, "LD_PRELOAD": preload}, check=False, **options
        )

    def to_dict(self) -> dict[str, Any]:
        """The folder and what it was made of, for JSON."""
        return {"folder": str(self.folder), **self.stamp}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Build) and (self.folder, self.stamp) == (other.folder, other.stamp)

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        table = self.stamp["table"]
        return f"<Build {self.folder}: table {table['name']}, hash {table['hash']}>"
