# SPDX-License-Identifier: Apache-2.0
"""The result of recording a program, and what is told about it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spanwise import _format
from spanwise.recordings.programs import runtime_of

if TYPE_CHECKING:
    from spanwise.recordings.recording_set import RecordingSet


@dataclass(frozen=True)
class Outcome:
    """The result of running a program under the recorder.

    Attributes:
        path: the recording of the program itself.
        others: recordings of its children, and of what the process was before it called exec.
        status: exit status of the program; negative: the signal that ended it.
        stopped_by: the signal by which we were asked to stop meanwhile; 0: none.
        unordered: why recordings stayed as the recorder wrote them; "": they did not.
        python_sites: whether lines of Python were asked for.
    """

    path: Path
    others: tuple[Path, ...]
    status: int
    stopped_by: int = 0
    unordered: str = ""
    python_sites: bool = False

    def recordings(self) -> RecordingSet:
        """The program's recording first, then the others."""
        from spanwise.recordings.recording import Recording  # noqa: PLC0415  as the recorder does
        from spanwise.recordings.recording_set import RecordingSet  # noqa: PLC0415

        return RecordingSet(
            Recording.open(path, valid_prefix=bool(self.unordered))
            for path in (self.path, *self.others)
        )

    def findings(self) -> list[str]:
        """What the recordings lack of the program, and why; empty when nothing is missing."""
        told = [f"kept as it was recorded, not in order: {self.unordered}"] * bool(self.unordered)
        each = [(Path(str(one.path)).name, one) for one in self.recordings()]
        if self.python_sites and not any(one.has_python_lines for _, one in each):
            told.append("no line of Python was seen: the recorder knows those of CPython 3.11")
        return told + [f"{name}: {gap}" for name, one in each for gap in one.summary.gaps()]

    def outside(self) -> list[str]:
        """Heaps in the program that bypass malloc, whose calls alone are recorded."""
        brought: dict[str, str] = {}
        told = set()
        for one in self.recordings():
            for path in {one.program, *(module.path for module in one.modules)}:
                if path not in brought:
                    brought[path] = runtime_of(path)
                if brought[path]:
                    told.add((Path(one.program).name, brought[path]))
        return [
            f"{name} has a heap of its own, {runtime}'s, which a recording of malloc does not see"
            for name, runtime in sorted(told)
        ]

    def lines(self) -> list[str]:
        """The lines to print: how the program failed, what is missing, and last the counts."""
        told = []
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            told.append(f"ended after {name}; the recording of what ran until then is kept")
        if self.status < 0:
            told.append(f"the program was ended by signal {-self.status}")
        elif self.status > 0:
            told.append(f"the program exited with {self.status}")
        return [*told, *self.outside(), *self.findings(), self._counts()]

    def _counts(self) -> str:
        first, *others = self.recordings()
        own = first.summary
        kinds = (("allocation", own.allocs), ("free", own.frees), ("reallocation", own.reallocs))
        counts = ", ".join(_format.plural(count, noun) for noun, count in kinds)
        parts = [
            f"{_format.plural(own.events, 'event')} ({counts})",
            f"peak {_format.size(own.peak_requested_bytes)}",
            *(f"{title}: {count:,}" for title, count in own.troubles()[:1] if own.dropped_calls),
        ]
        line = f"{self.path}: {', '.join(parts)}"
        children = [one for one in others if one.info["pid"] != first.info["pid"]]
        images = [one for one in others if one.info["pid"] == first.info["pid"]]
        for group, noun in ((images, "image before exec"), (children, "child")):
            events = _format.plural(sum(one.events for one in group), "event")
            line += f"; {_format.plural(len(group), noun)} recorded ({events})" if group else ""
        if own.children_unrecorded:
            line += f"; {_format.plural(own.children_unrecorded, 'child')} not recorded"
            line += "" if children else " (--children records them)"
        return line
