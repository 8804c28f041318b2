#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates, proves and checks size-class tables; `--help` has examples. Code: sizeclasses_lib/.

Needs nothing but the standard library, and runs from a checkout as well as from the sources that
the wheel carries.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sizeclasses_lib.cli import main

if __name__ == "__main__":
    sys.exit(main())
