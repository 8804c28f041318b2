#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists the studies, or runs one: ./dev study NAME [OPTIONS]."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from studies.catalogue import STUDIES


def listing() -> str:
    """A line a study."""
    width = max(map(len, STUDIES))
    return "\n".join(f"  {name:<{width}}  {each.question}" for name, each in STUDIES.items())


def main(arguments: Sequence[str]) -> int:
    """Does what the words ask for.

    Args:
        arguments: nothing, NAME OPTIONS..., or `--needs NAME`, which prints what must be there
            before the study runs.

    Returns:
        The study's exit status; 2 for a name that is no study.
    """
    if not arguments:
        print(listing())
        return 0
    ask_needs = arguments[0] == "--needs"
    name, *options = arguments[1:] if ask_needs else arguments
    study = STUDIES.get(name)
    if study is None:
        print(f"study: there is no study '{name}'; ./dev study lists them", file=sys.stderr)
        return 2
    if ask_needs:
        print(study.needs)
        return 0
    return study.run(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
