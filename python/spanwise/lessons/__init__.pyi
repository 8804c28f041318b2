# SPDX-License-Identifier: Apache-2.0
"""The modules of lessons, for type checkers and `lazy_loader`."""

from . import articles as articles
from . import cases as cases
from . import placement as placement
from . import service as service

__all__: list[str]
