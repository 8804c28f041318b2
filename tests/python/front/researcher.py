# SPDX-License-Identifier: Apache-2.0
"""A script that a researcher would write on the first day, in forty lines."""

import sys

import spanwise as sw

# A program grows one mix of sizes, frees nine tenths of it at random, and grows another mix.
recording = sw.workloads.phase_shift(grow=int(sys.argv[1]), freed=0.9, seed=1)
print(recording)
print(recording.summary.peak_requested_bytes, "bytes requested at the peak")

# Four tables on the same operations.
tables = [
    sw.SizeClassTable.go(),
    sw.SizeClassTable.c16(),
    sw.SizeClassTable.jemalloc(),
    sw.SizeClassTable.geometric(1.25),
]
comparison = sw.compare(recording, tables, at="peak")
print(comparison)
best = comparison.best()
print(best.table, "has a peak resident of", best.peak_resident_bytes, "bytes")
print("and holds", best.held_bytes)
for ledger in comparison.ledgers:
    print(ledger.table, ledger.measures["held_over_requested"].value)
sw.plots.save(comparison.plot(), "tables.png")

# What a table does to one size, and what it holds over time.
table = tables[0]
print(table.explain(33).waste_bytes, table.waste(33))
timeline = recording.timeline(table)
print((timeline["held_bytes"] - timeline["requested_bytes"]).max(), "bytes wasted at most")
sw.plots.save(recording.plot_timeline(table), "timeline.png")

# With real memory: resident bytes over time, next to jemalloc if it is installed.
replays = [sw.replay(recording, "spanwise", drain=(0.1,))]
try:
    replays.append(sw.replay(recording, "jemalloc", drain=(0.1,)))
except sw.ProgramError as error:
    print(error)
for replay in replays:
    print(replay.allocator, replay.peak_rss_bytes, replay.samples["rss_bytes"].max())
    print(replay.to_json()[:2].strip(), len(replay.array), "rows")
sw.plots.save(sw.plots.replays(replays), "replays.png")

# Keep it.
comparison.to_json("comparison.json")
table.to_json("table.json")
assert sw.SizeClassTable.from_json("table.json") == table
