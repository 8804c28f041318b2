# SPDX-License-Identifier: Apache-2.0
"""A pytest marker: the limits of `spanwise check` for the allocations of a test.

    @pytest.mark.spanwise(max_waste="20%", max_resident="64M")
    def test_parse(): ...

pytest loads this module in every run, so it imports spanwise only for marked tests.
"""

from __future__ import annotations

from typing import Any

MARKER = (
    "spanwise(max_waste, max_resident, max_held, max_requested, table, at, ...): run the test in a"
    " recorded process of its own, and fail it if its allocations are above a limit; arguments"
    " are the options of `spanwise check --ignore-fixed`"
)


def pytest_configure(config: Any) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run a marked test; return None for other tests, which pytest then runs."""
    marker = pyfuncitem.get_closest_marker("spanwise")
    if marker is None:
        return None
    from spanwise_pytest import limits  # noqa: PLC0415  only marked tests pay for spanwise

    limits.run_marked(pyfuncitem, marker)
    return True
