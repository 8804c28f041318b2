# SPDX-License-Identifier: Apache-2.0
"""A message server under load, with eight ways to allocate a message.

Connections live long and keep their state and buffers in tiered slabs; messages are short-lived.
The loop is C (examples/service), so no Python loop is measured. Design: docs/design/service.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib
from spanwise._lib import ffi, lib
from spanwise.errors import InvalidError, OutOfMemoryError
from spanwise.results.rows import Result, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STRATEGIES = ("static", "heap", "collected", "pool", "arena", "batch", "slab", "arena_pool")
"""The source of the four objects of a message, in the order of sw_service_strategy: static blocks
(the cost without allocation); a heap; a collected heap; pools; an arena per message; an arena per
batch of messages; tiered slabs; an arena per batch, and pools for the payload."""

BIN_FLOORS: NDArray[np.uint64] = np.array(
    [lib.sw_service_bin_floor(i) for i in range(lib.SW_SERVICE_BINS)], np.uint64
)
"""The minimum latency of each bin in nanoseconds; bins are exact below 128 ns, then 1/128 wide."""


@dataclass(frozen=True)
class ServiceRun(Result):
    """The result of a load.

    Attributes:
        latency_bins: number of latencies in each bin of BIN_FLOORS; empty if not measured. A
            latency counts from the intended arrival in an open loop, and from the previous reply in
            a closed one.
    """

    strategy: str  # one of STRATEGIES
    messages: int  # messages served
    threads: int  # threads that served them
    rate: float | None  # intended arrivals per second; None: a closed loop
    elapsed_ns: int  # time for all messages
    cpu_ns: int  # CPU time of the threads; in an open loop it includes waiting
    allocs: int  # objects allocated for messages
    requested_bytes: int  # requested bytes of these objects
    opened: int  # connections opened, including the initial ones
    collections: int  # cycles of the collector
    pause_ns: int  # total pause time
    longest_pause_ns: int  # the longest pause
    scanned_bytes: int  # live bytes that the collections marked
    rss_bytes: int | None  # RSS of the process after the last message; None: unknown
    checksum: int  # checksum of all replies, the same for every strategy and number of threads
    latency_bins: NDArray[np.uint64] = field(repr=False, compare=False)

    @property
    def messages_per_second(self) -> float:
        """Throughput."""
        return self.messages * 1e9 / self.elapsed_ns

    @property
    def cpu_ns_per_message(self) -> float:
        """Processor time per message."""
        return self.cpu_ns / self.messages

    def latency_ns(self, percent: float) -> float:
        """Return the latency that `percent` of the messages do not exceed, within 1/128."""
        if not len(self.latency_bins):
            raise InvalidError("latencies were not measured: serve with latencies=True")
        if not 0 <= percent <= 100:
            raise InvalidError(f"percent {percent!r}: give 0 to 100")
        counts = np.cumsum(self.latency_bins)
        rank = max(int(np.ceil(percent / 100 * float(counts[-1]))), 1)
        return float(BIN_FLOORS[int(np.searchsorted(counts, rank))])

    def plot_latencies(self, ax: Axes | None = None) -> Axes:
        """Draw latency by the percentage of messages not exceeding it, as HdrHistogram does."""
        return draw("latencies", [self], ax)

    def __str__(self) -> str:
        text = self.strategy if self.threads == 1 else f"{self.strategy}, {self.threads} threads"
        if self.rate is None:
            text += f", closed loop: {self.cpu_ns_per_message:.0f} ns CPU per message"
        else:
            text += f", {self.rate:,.0f} messages/s requested"
        text += f", {self.messages_per_second:,.0f} messages/s"
        if len(self.latency_bins):
            shown = [f"P{p:g} {_format.seconds(round(self.latency_ns(p)))}" for p in (50, 99, 99.9)]
            text += ", " + ", ".join(shown)
        if self.collections:
            text += f", {_format.plural(self.collections, 'collection')} of"
            text += f" {_format.seconds(self.pause_ns)} together, the longest"
            text += f" {_format.seconds(self.longest_pause_ns)}"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Return all fields, for JSON, with the bins that are not empty as (minimum, count)."""
        fields = asdict(self)
        bins = fields.pop("latency_bins")
        filled = np.flatnonzero(bins)
        fields["latencies"] = [[int(BIN_FLOORS[i]), int(bins[i])] for i in filled]
        return fields


def serve(
    strategy: str,
    *,
    messages: SupportsIndex = 100_000,
    connections: SupportsIndex = 1000,
    batch: SupportsIndex = 32,
    payload_bytes: SupportsIndex = 128,
    churn: SupportsIndex = 100,
    threads: SupportsIndex = 1,
    rate: float | None = None,
    latencies: bool = True,
    safe: bool = False,
    percent: SupportsIndex = 100,
    live_bytes: SupportsIndex = 0,
    seed: SupportsIndex = 1,
) -> ServiceRun:
    """Serve messages with threads and measure throughput, CPU time and latencies.

    Args:
        strategy: one of STRATEGIES.
        messages: number of messages, at least 1.
        connections: open connections; each has 5.25 KiB of slots.
        batch: messages per arena of the strategies "batch" and "arena_pool".
        payload_bytes: mean of the random payload sizes, 1 to 240.
        churn: messages between two replacements of a connection; 0: none is replaced.
        threads: threads that serve one queue, 1 to 64. They share the heap, the collector, pools
            and slabs; arenas are their own. Use at most one per processor: a waiting thread spins.
        rate: arrivals per second, with exponential gaps (an open loop); None: a message arrives
            when a thread has served the previous one (a closed loop).
        latencies: measure the latency of each message; an open loop always does.
        safe: use safe arenas.
        percent: growth of the collected heap between collections, as GOGC; 0: no collections.
        live_bytes: live bytes of the collected heap in addition to the messages.
        seed: of the random numbers.

    Raises:
        InvalidError: the strategy is unknown, or a number is not within these limits.
        OutOfMemoryError: no memory.
    """
    if strategy not in STRATEGIES:
        raise InvalidError(f"strategy {strategy!r}: must be one of {', '.join(STRATEGIES)}")
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidError(f"rate {rate!r}: give messages per second, above 0, or None")
    load, most = ffi.new("sw_service_load *"), (1 << 32) - 1
    load.strategy = STRATEGIES.index(strategy)
    load.connections = _lib.as_index(connections, "connections", 1 << 20)
    load.messages = _lib.as_index(messages, "messages")
    load.batch = _lib.as_index(batch, "batch", most)
    load.payload_bytes = _lib.as_index(payload_bytes, "payload_bytes", most)
    load.churn = _lib.as_index(churn, "churn", most)
    load.percent = _lib.as_index(percent, "percent", most)
    load.live_bytes = _lib.as_index(live_bytes, "live_bytes")
    load.threads = _lib.as_index(threads, "threads", most)
    load.rate = 0.0 if rate is None else rate
    load.safe = int(safe)
    load.seed = _lib.as_index(seed, "seed", most)
    taken = latencies or rate is not None
    bins = np.zeros(lib.SW_SERVICE_BINS if taken else 0, np.uint64)
    result = ffi.new("sw_service_result *")
    c_bins = _lib.pointer(bins, "uint64_t *") if taken else ffi.NULL
    status = lib.sw_service_run(load, c_bins, result)
    if _lib.text(lib.sw_status_name(status)) == "INVALID":
        raise InvalidError(
            "messages, connections and batch: 1 or more; payload_bytes: 1 to 240; threads: 1 to 64"
        )
    if status != 0:
        raise OutOfMemoryError("no memory for the server, its connections or a message")
    fields = _lib.struct_dict(result)
    fields["rss_bytes"] = fields["rss_bytes"] or None
    bins.flags.writeable = False
    return ServiceRun(
        strategy, int(load.messages), int(load.threads), rate, latency_bins=bins, **fields
    )
