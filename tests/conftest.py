# SPDX-License-Identifier: Apache-2.0
"""For all tests: children can be ended by signals, however the tests were started."""

import signal


def pytest_configure() -> None:
    """A shell's background jobs ignore SIGINT, what nohup starts SIGHUP; children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
