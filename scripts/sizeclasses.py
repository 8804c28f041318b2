#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates, proves and checks size-class tables; `--help` has examples.

The code is in the package `spanwise_sizeclasses`, which needs only the standard library. A checkout
has it in python/; an installed wheel has it next to the package `spanwise`, which has this file in
`_source/scripts`.
"""

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_CHECKOUT = _ROOT / "python"
sys.path.insert(0, str(_CHECKOUT if _CHECKOUT.is_dir() else _ROOT.parents[1]))

from spanwise_sizeclasses.cli import main  # noqa: E402  found through the line above

if __name__ == "__main__":
    sys.exit(main())
