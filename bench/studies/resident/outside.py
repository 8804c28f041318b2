# SPDX-License-Identifier: Apache-2.0
"""What is resident of a process outside of its heap, by smaps."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from spanwise.measure.running import find_face

_REGION = re.compile(r"(?m)^([0-9a-f]+)-([0-9a-f]+) (\S+) .*\n(?:[A-Z].*\n)*?Rss: +(\d+) kB")
_SPACE_LOG2 = 40  # the addresses that a live process reserves for its heap's windows, aligned


def split_resident(smaps: str) -> tuple[int, int]:
    """What is resident of a process, and what of it is outside of the windows of its heap.

    The windows lie in a reservation of 1 TiB, most of which is never accessible.
    """
    regions = [
        (int(start, 16), int(end, 16), access, 1024 * int(rss))
        for start, end, access, rss in _REGION.findall(smaps)
    ]
    spaces = {
        start >> _SPACE_LOG2
        for start, end, access, _ in regions
        if access.startswith("---") and end - start > 1 << (_SPACE_LOG2 - 1)
    }
    total = sum(rss for *_, rss in regions)
    return total, sum(rss for start, _, _, rss in regions if start >> _SPACE_LOG2 not in spaces)


def outside_at_most(argv: list[str], env: dict[str, str]) -> int:
    """What was resident outside of the heap's windows when most of a plain run was resident.

    The run is looked at every few milliseconds; metadata of the heap counts, since that lies
    outside of its windows. 0: it ended before it was looked at.
    """
    preload = {"LD_PRELOAD": str(find_face(None, None)), "PYTHONMALLOC": "malloc"}
    process = subprocess.Popen(argv, env={**env, **preload}, stdout=subprocess.DEVNULL)
    most = 0, 0
    while process.poll() is None:
        try:
            most = max(most, split_resident(Path(f"/proc/{process.pid}/smaps").read_text()))
        except (OSError, UnicodeDecodeError):
            break
        time.sleep(0.002)
    process.wait()
    return most[1]
