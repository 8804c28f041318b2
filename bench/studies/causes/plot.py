# SPDX-License-Identifier: Apache-2.0
"""The picture of the study: a bar a program, its causes, and the others' peaks on its scale."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from runner.drawing import pyplot, save
from spanwise import _format

from studies.causes.look import PEERS, Seen
from studies.causes.page import SAID

_LOOKS = {
    "outside": ("#F2F3F4", ""),
    "requested": ("#D5D8DC", ""),
    "rounding": ("#0072B2", ""),
    "pages ahead": ("#CC79A7", ""),
    "current spans": ("#CC79A7", "...."),
    "idle classes": ("#CC79A7", "////"),
    "kept large": ("#CC79A7", "xxxx"),
    "partial, young": ("#E69F00", ""),
    "partial, middle": ("#E69F00", "...."),
    "partial, old": ("#E69F00", "////"),
    "free pages": ("#009E73", ""),
    "metadata": ("#56B4E9", ""),
    "the library's file": ("#56B4E9", "////"),
}
"""Seven colours: what caches keep has one, and so have partial spans; hatches tell them apart."""
_MARKS = {"glibc": "o", "jemalloc": "s", "mimalloc": "^", "tcmalloc": "D"}
_LINE_INCHES = 0.32
_WIDEST = 1.6


def draw(found: Sequence[Seen], path: Path, measured: str) -> Path:
    """Writes the picture; all is in percent of the program's own peak RSS under spanwise."""
    plt = pyplot()
    order = sorted(found, key=lambda one: one.spanwise)
    figure, axis = plt.subplots(figsize=(13, 1.8 + _LINE_INCHES * len(order)))
    order_causes = ["outside", *(name for name in SAID if name != "outside")]
    labelled = next((place for place, one in enumerate(order) if one.is_told), 0)
    for place, one in enumerate(order):
        left = 0.0
        for name in order_causes if one.is_told else ():
            share = one.causes[name] / one.spanwise
            axis.barh(
                place, share, left=left, height=0.72, color=_LOOKS[name][0],
                hatch=_LOOKS[name][1], edgecolor="white", linewidth=0.4,
                label=name if place == labelled else None,
            )  # fmt: skip
            left += share
        for name in PEERS:
            rss = one.peers[name]
            if rss is None:
                continue
            at = min(rss / one.spanwise, _WIDEST)
            axis.plot(
                at, place, _MARKS[name], markersize=5.5, color="black", markerfacecolor="white",
                markeredgewidth=1.1, clip_on=False, label=name if place == 0 else None,
            )  # fmt: skip
    unknown = "  (causes not known)"
    labels = [
        f"{one.name}  {_format.size(one.spanwise)}{'' if one.is_told else unknown}" for one in order
    ]
    axis.set_yticks(range(len(order)), labels)
    axis.set_ylim(-0.6, len(order) - 0.4)
    axis.set_xlim(0, _WIDEST)
    axis.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.axvline(1, color="#444444", linewidth=0.8, zorder=0)
    axis.set_xlabel(
        "of peak RSS under spanwise; marks: peak RSS under others, at the edge where it is more"
    )
    axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    axis.set_title(f"Where resident bytes go: {len(order)} programs at their peak RSS", loc="left")
    written = save(figure, path, measured)
    plt.close(figure)
    return written
