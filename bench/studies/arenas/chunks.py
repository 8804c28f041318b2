# SPDX-License-Identifier: Apache-2.0
"""How large an arena's chunks should be: time of an object, and dead bytes that wait in its arena.

Time is measured: arenas of one chunk of 16 KiB to 8 MiB are filled with objects of 64 B, one after
the other. Drag is what arenas hold over what is live, of messages whose lives are gamma distributed
with a mean of 1,000 arrivals: an arena takes messages until its chunk is full, and is freed with
the last of them. Beside it stand a real heap, which gets each message back, and one large block,
which is freed with the last message of all.

    ./dev study arena-chunks -o docs/measurements/FILE.md --plot docs/arena-chunks.png    1 minute
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from runner.drawing import DARK, OTHERS, OURS, pyplot, save
from runner.provenance import measured_here
from runner.stats import median
from spanwise.lessons.drag import group_drag

from studies.arenas.program import (
    command_of,
    parser_of,
    picture_of,
    run,
    table,
    tell,
    where_and_when,
)

CHUNKS = tuple(1 << log2 for log2 in range(14, 24))
OBJECT_BYTES = 64
SPREADS = (0.0, 0.3, 1.0, 3.0)
MEAN_LIFE = 1000
MARKS = "os^d"


@dataclass(frozen=True)
class Messages:
    """Messages with their lives, counted in arrivals.

    Attributes:
        sizes: bytes of each.
        births: when each arrives.
        deaths: when each is dropped.
    """

    sizes: NDArray[np.int64]
    births: NDArray[np.int64]
    deaths: NDArray[np.float64]


@dataclass(frozen=True)
class Drags:
    """Held bytes over live bytes, averaged over time.

    Attributes:
        arenas: by bytes of a chunk.
        heap: of a real heap.
        block: of one block for all.
    """

    arenas: dict[int, float]
    heap: float
    block: float


def draw_messages(count: int, spread: float, seed: int = 20) -> Messages:
    """Messages of 208 B on average, whose lives have this standard deviation over their mean."""
    rng = np.random.default_rng(seed)
    sizes = 80 + np.minimum(rng.geometric(1 / 128, count), 4096)
    lives = np.full(count, float(MEAN_LIFE))
    if spread > 0:
        lives = rng.gamma(1 / spread**2, MEAN_LIFE * spread**2, count)
    births = np.arange(count)
    return Messages(sizes, births, births + lives)


def heap_drag(messages: Messages) -> float:
    """Held over live bytes of a real heap, as means over all arrivals."""
    order = np.argsort(messages.deaths, kind="stable").tolist()
    deaths, sizes = messages.deaths.tolist(), messages.sizes.tolist()
    held = live = 0
    done, now_live = 0, 0
    with sw.Heap("c16") as heap:
        blocks: dict[int, sw.Block] = {}
        for i, size in enumerate(sizes):
            while deaths[order[done]] < i:  # a life may be 0
                blocks.pop(order[done]).free()
                now_live -= sizes[order[done]]
                done += 1
            blocks[i] = heap.alloc(size)
            now_live += size
            if i % 50 == 0:
                held += heap.stats().held_bytes
                live += now_live
    return held / live


def drags(messages: Messages, chunks: Sequence[int]) -> Drags:
    """Of arenas of one chunk each, of a heap, and of one block for all."""
    columns = (messages.sizes, messages.births, messages.deaths)
    mean, count = float(messages.sizes.mean()), len(messages.sizes)
    arenas = {}
    for chunk in chunks:
        group = max(1, int(chunk / mean))
        arenas[chunk] = group_drag(*columns, group=group, group_bytes=chunk).held_over_live
    block = group_drag(*columns, group=count, group_bytes=int(messages.sizes.sum()))
    return Drags(arenas, heap_drag(messages), block.held_over_live)


def times(build: Path, rounds: int, chunks: Sequence[int], objects: int) -> dict[int, float]:
    """Processor ns of an object, by bytes of a chunk."""
    found: dict[int, list[float]] = {chunk: [] for chunk in chunks}
    for _ in range(rounds):
        for chunk in chunks:
            found[chunk].append(float(run(build, "chunks", OBJECT_BYTES, chunk, objects)[0][0]))
    return {chunk: median(values) for chunk, values in found.items()}


def name_of(chunk: int) -> str:
    """16 KiB, 8 MiB."""
    return f"{chunk >> 20} MiB" if chunk >= 1 << 20 else f"{chunk >> 10} KiB"


def page(cost: dict[int, float], drag: dict[float, Drags], count: int, how: str) -> str:
    """Both tables."""
    rows = [
        [name_of(chunk), f"{ns:.2f}", *(f"{each.arenas[chunk]:.2f}" for each in drag.values())]
        for chunk, ns in cost.items()
    ]
    rows.append(["a heap", "", *(f"{each.heap:.2f}" for each in drag.values())])
    rows.append(["one block for all", "", *(f"{each.block:.2f}" for each in drag.values())])
    header = ["chunk", "ns an object", *(f"drag, spread {spread:g}" for spread in drag)]
    parts = (
        "# How large an arena's chunks should be",
        how,
        f"Processor ns of an object of {OBJECT_BYTES} B that is written, in arenas of one chunk"
        f" each; and held bytes over live bytes of {count:,} simulated messages of some 208 B that"
        f" live {MEAN_LIFE:,} arrivals on average, in arenas that are full and freed with the last"
        " message. Spread is the standard deviation of lives over their mean. The heap is a real"
        " one, with its pages and metadata; what 'one block' holds grows with the number of"
        " messages.",
        table(header, rows),
    )
    return "\n\n".join(parts) + "\n"


def draw(cost: dict[int, float], drag: dict[float, Drags]) -> Any:
    """Time at the left, drag at the right, against the size of a chunk."""
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    left.semilogx(list(cost), list(cost.values()), marker="o", color=OURS, base=2)
    left.set(
        ylim=(0, 1.15 * max(cost.values())),
        ylabel="processor ns of an object",
        title="objects of 64 B, written",
    )
    styles = ("-", "--", "-.", ":")
    for (spread, each), style, mark in zip(drag.items(), styles, MARKS, strict=False):
        (line,) = right.loglog(
            list(each.arenas), list(each.arenas.values()), style, marker=mark, ms=4, base=2
        )
        line.set_label(f"arenas, spread {spread:g}")
    worst = list(drag.values())[-1]
    right.axhline(worst.heap, color=DARK, lw=1, label="a heap, largest spread")
    right.axhline(worst.block, color=OTHERS, lw=2, label="one block for all")
    right.set(ylabel="held bytes over live bytes", title="drag of messages")
    right.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3)
    for ax in (left, right):
        chunks = list(cost)[::3]
        ax.set_xticks(chunks, [name_of(chunk) for chunk in chunks])
        ax.minorticks_off()
        ax.set_xlabel("chunk")
    ticks = [1, 2, 4, 8, 16, 32, 64, 128]
    right.set_yticks(ticks, [str(tick) for tick in ticks])
    figure.suptitle("bench_study_arenas chunks: arenas by the size of their chunks")
    figure.tight_layout()
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, simulates, prints the page, and writes what was asked for."""
    parser = parser_of("arena-chunks", __doc__, "--rounds 3 --plot build/arena-chunks.png")
    options = parser.parse_args(arguments)
    rounds, objects, count = options.rounds, 4_000_000, 100_000
    chunks: Sequence[int] = CHUNKS
    spreads: Sequence[float] = SPREADS
    if options.quick:
        rounds, objects, count = 1, 10_000, 2_000
        chunks, spreads = CHUNKS[:4:3], SPREADS[::2]
    cost = times(options.build, rounds, chunks, objects)
    drag = {spread: drags(draw_messages(count, spread), chunks) for spread in spreads}
    how = where_and_when(command_of("arena-chunks", options), rounds)
    how += picture_of(options, "Time and drag by the size of an arena's chunks")
    tell(page(cost, drag, count, how), options.output)
    if options.plot is not None:
        save(draw(cost, drag), options.plot, measured_here(options.build))
    return 0
