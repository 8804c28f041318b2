# SPDX-License-Identifier: Apache-2.0
"""For all tests: children can be interrupted, however the tests were started."""

import signal


def pytest_configure() -> None:
    """A shell starts what it puts in the background with SIGINT ignored; children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
