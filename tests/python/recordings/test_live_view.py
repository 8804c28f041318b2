# SPDX-License-Identifier: Apache-2.0
"""The live view: what it reads of a growing recording, against a finished one and counts."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.recordings.follow import EVENTS_DTYPE, Follower
from spanwise.recordings.live_view import LivePage, LiveRow, LiveView, growth_of
from spanwise.recordings.recorder import RECORDER
from spanwise.recordings.sampled import FEW, Estimate, estimate_sum

from tests.python.helpers import compiled, needs_recorder

pytestmark = needs_recorder()

ALL = 1 << 30
MIB = 1 << 20

# It does what its input says, one line at a time, and answers with a line once it is done.
SERVER = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { BIG = 1 << 20 };
__attribute__((noinline)) void *leak(void) { return malloc(BIG); }
__attribute__((noinline)) void *keep(void) { return malloc(BIG); }
__attribute__((noinline)) void *churn(void) { return malloc(BIG); }
static void *kept[1000];
static void *free_one(void *p) { free(p); return NULL; }
enum { WORKERS = 4, SLOTS = 64 };
static _Atomic(void *) slots[SLOTS];
static int rounds;
__attribute__((noinline)) void *shared(size_t n) { return malloc(n); }
/* Objects of one thread are freed by another, and their addresses are soon used by a third. */
static void *work(void *arg) {
    unsigned seed = (unsigned)(size_t)arg;
    for (int i = 0; i < rounds; i++) {
        void *p = shared(1000 + (size_t)rand_r(&seed) % 40000);
        free(atomic_exchange(&slots[rand_r(&seed) % SLOTS], p));
    }
    return NULL;
}
static void work_together(int count) {
    pthread_t threads[WORKERS];
    rounds = count;
    for (size_t i = 0; i < WORKERS; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
}
int main(int argc, char **argv) {
    char what;
    int count, used = 0;
    (void)argc;
    setvbuf(stdin, NULL, _IONBF, 0); /* exec would lose what is buffered */
    while (scanf(" %c %d", &what, &count) == 2) {
        pthread_t thread;
        for (int i = 0; what != 'w' && i < count; i++) {
            if (what == 'l' && leak() == NULL) return 1;
            if (what == 'k') kept[used++] = keep();
            if (what == 'f') free(kept[--used]);
            if (what == 'c') free(churn());
            if (what == 't') {
                pthread_create(&thread, NULL, free_one, churn());
                pthread_join(thread, NULL);
            }
        }
        if (what == 'w') work_together(count);
        if (what == 'x') execv(argv[0], argv);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
"""


class Server:
    """A recorded program that allocates when it is asked to."""

    def __init__(self, folder: Path, sample_bytes: int) -> None:
        self.raw = folder / "raw/a.swt"
        self.areas = folder / "areas"
        for one in (self.raw.parent, self.areas):
            one.mkdir()
        variables = {
            **os.environ,
            "LD_PRELOAD": str(_lib.native_library(RECORDER)),
            "SPANWISE_RECORD_FILE": str(self.raw),
            "SPANWISE_RECORD_AREAS": str(self.areas),
            "SPANWISE_RECORD_SAMPLE": str(sample_bytes),
        }
        program = compiled(folder, SERVER, "-pthread", "-fno-builtin", name="server.c")
        self.process = subprocess.Popen(
            [program], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def do(self, what: str, count: int) -> None:
        """Let it do something, and wait until it is done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what} {count}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def end(self) -> None:
        """Let it end, and wait for that."""
        self.process.communicate()
        assert self.process.returncode == 0


@contextmanager
def server(folder: Path, sample_bytes: int = 4096) -> Iterator[Server]:
    """An object of 1 MiB is recorded with a probability of 1 - e^-256, so figures are exact."""
    one = Server(folder, sample_bytes)
    late = threading.Timer(60, one.process.kill)
    late.start()
    try:
        yield one
    finally:
        late.cancel()
        one.process.kill()
        one.process.communicate()


def updated(view: LiveView) -> LivePage:
    view.update(name_all=True)
    return view.page(ALL)


def row_of(page: LivePage, function: str) -> LiveRow:
    (found,) = [
        row for row in page.rows if row.site.names and row.site.names[0].startswith(f"{function} ")
    ]
    return found


def live(page: LivePage, function: str) -> float:
    return row_of(page, function).requested.value / MIB


# --- while the program runs -----------------------------------------------------------------------


def test_open_blocks_are_read_as_they_grow(tmp_path: Path) -> None:
    """A block is written after 4096 events only, so all of this is in the areas at first."""
    with server(tmp_path) as one:
        view = LiveView(one.process.pid, one.raw, one.areas, 4096)
        one.do("l", 10)
        one.do("k", 20)
        page = updated(view)
        assert (live(page, "leak"), live(page, "keep")) == (10, 20)
        assert page.sample_bytes == 4096 and page.rss_bytes > 0
        for _ in range(3):
            assert live(updated(view), "leak") == 10  # nothing is read twice
        one.do("f", 15)
        one.do("l", 1)
        page = updated(view)
        assert (live(page, "leak"), live(page, "keep")) == (11, 5)
        one.do("c", 30_000)  # 60,000 events: 14 blocks are written, and one is open
        page = updated(view)
        assert (live(page, "leak"), live(page, "keep"), live(page, "churn")) == (11, 5, 0)
        assert row_of(page, "churn").allocated.value == 30_000 * MIB
        assert row_of(page, "churn").recorded == 30_000
        one.do("t", 10)  # allocated by one thread, freed by another that ends
        page = updated(view)
        assert live(page, "churn") == 0 and row_of(page, "churn").recorded == 30_010
        whole = page.requested.value
        one.end()
        assert updated(view).requested.value == pytest.approx(whole, abs=MIB / 2)


def test_growth_is_since_the_window_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwise.recordings.live_view._SPACING_S", 0.0)
    monkeypatch.setattr("spanwise.recordings.live_view.WINDOW_S", 0.0)  # since the last update
    with server(tmp_path) as one:
        view = LiveView(one.process.pid, one.raw, one.areas, 4096)
        one.do("l", 10)
        one.do("k", 20)
        view.update()
        one.do("l", 3)
        one.do("f", 15)
        monkeypatch.setattr("spanwise.recordings.live_view._SPACING_S", 1e9)
        page = updated(view)
        growth = row_of(page, "leak").growth
        assert (growth.value, growth.low, growth.high) == pytest.approx((3 * MIB,) * 3)
        assert row_of(page, "keep").growth.value == pytest.approx(-15 * MIB)
        assert page.window_s < page.elapsed_s


def test_threads_are_read_while_they_run(tmp_path: Path) -> None:
    """No event is lost, read twice or misread: the end is that of the recording."""
    with server(tmp_path) as one:
        view = LiveView(one.process.pid, one.raw, one.areas, 4096)
        one.do("l", 10)
        view.update(name_all=True)
        working = threading.Thread(target=one.do, args=("w", ROUNDS))
        working.start()
        sizes = []
        while working.is_alive():
            view.update()
            sizes.append(len(view._live))
        one.do("l", 1)
        assert live(updated(view), "leak") == 11
        one.end()
        # Each thread may have an object that is not yet, or no more, in a slot. A single reading
        # may have more, if this process waited while a thread filled two blocks.
        assert np.median(sizes) <= 10 + 64 + 2 * WORKERS + LIBRARY
        assert_equal(updated(view), sw.SampledRecording.open(one.raw).estimate(at="end"))


ROUNDS = 300_000 if os.environ.get("SPANWISE_FULL_TESTS") else 30_000
WORKERS = 4
LIBRARY = 16  # objects of the C library


def test_after_exec_the_new_program_is_shown(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        view = LiveView(one.process.pid, one.raw, one.areas, 4096)
        one.do("k", 20)
        assert live(updated(view), "keep") == 20
        assert one.process.stdin is not None
        one.process.stdin.write("x 1\n")
        one.process.stdin.flush()
        one.do("l", 7)
        view.update()  # this one may see that the file is another
        page = updated(view)
        assert live(page, "leak") == 7
        assert all("keep" not in row.site.names[0] for row in page.rows)


def test_a_program_that_has_not_begun_has_nothing(tmp_path: Path) -> None:
    page = updated(LiveView(os.getpid(), tmp_path / "a.swt", tmp_path, 4096))
    assert page.rows == () and page.recorded == 0 and page.requested == Estimate(0.0, 0.0, 0.0)


# --- against the finished recording ---------------------------------------------------------------


def assert_equal(page: LivePage, found: sw.Estimates) -> None:
    """A page has the figures of `spanwise estimate --at end`."""
    for name, one in (("requested_bytes", page.requested), ("allocated_bytes", page.allocated)):
        wanted = found.total[name]
        assert (one.value, one.low, one.high) == pytest.approx(
            (wanted.value, wanted.low, wanted.high)
        )
    many = found.array["recorded"] >= FEW
    wanted_rows = {
        names: tuple(row[column] for column in ("recorded", *COLUMNS))
        for row, names, shown in zip(found.array, found.callers, many.tolist(), strict=True)
        if shown
    }
    rows = {
        row.site.names: (
            row.recorded,
            *(row.requested.value, row.requested.low, row.requested.high),
            *(row.allocated.value, row.allocated.low, row.allocated.high),
        )
        for row in page.rows
    }
    assert rows.keys() == wanted_rows.keys() and rows
    for names, figures in rows.items():
        assert figures == pytest.approx(wanted_rows[names]), names
    assert page.few == int((~many).sum())
    assert (page.rest.value, page.rest.high) == pytest.approx((found.rest.value, found.rest.high))


COLUMNS = [
    f"{one}{end}" for one in ("requested_bytes", "allocated_bytes") for end in ("", "_low", "_high")
]


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The raw recording of a program with threads, of about 40 blocks."""
    with server(tmp_path_factory.mktemp("raw"), MIB) as one:
        for _ in range(5):
            for what, count in (("c", 20_000), ("l", 40), ("k", 60), ("f", 30), ("t", 50)):
                one.do(what, count)
        one.end()
        return one.raw


def test_a_finished_recording_has_the_estimates(raw: Path) -> None:
    view = LiveView(os.getpid(), raw, raw.parent, MIB)
    page = updated(view)
    assert 0.5 < page.recorded / 63_000 / 5 * 3 < 2  # 63 % of 100,750 objects
    assert_equal(page, sw.SampledRecording.open(raw).estimate(at="end"))


def test_a_recording_that_grows_by_any_bytes(raw: Path, tmp_path: Path) -> None:
    """Blocks are read when they are whole, wherever the file ends meanwhile."""
    random = np.random.default_rng(1)
    data, at = raw.read_bytes(), 0
    copy = tmp_path / "raw.swt"
    copy.touch()
    view = LiveView(os.getpid(), copy, tmp_path, MIB)
    with copy.open("ab", buffering=0) as file:
        while at < len(data):
            step = int(random.choice([1, 47, 48, 5000, 40_000]))
            file.write(data[at : at + step])
            at += step
            view.update()
    assert_equal(updated(view), sw.SampledRecording.open(raw).estimate(at="end"))


def test_damage_is_an_error(raw: Path, tmp_path: Path) -> None:
    data = bytearray(raw.read_bytes())
    data[64] ^= 1  # of the first block's magic
    (tmp_path / "raw.swt").write_bytes(data)
    with pytest.raises(sw.TraceFormatError, match="byte 64: no block"):
        Follower(tmp_path / "raw.swt", tmp_path).read()


# --- the order of events --------------------------------------------------------------------------


def test_events_may_arrive_late(tmp_path: Path) -> None:
    """Each event comes up to two updates late; the live objects at the end are those of a model."""
    random = np.random.default_rng(2)
    for _ in range(200):
        view = LiveView(os.getpid(), tmp_path / "none.swt", tmp_path, 1)
        owners: dict[int, int] = {}  # size of the live object at each address
        rounds: list[list[tuple[int, int, int, int, bool]]] = [[] for _ in range(15)]
        for stamp in range(1, 120):
            address = 16 * int(random.integers(1, 6))
            is_alloc = address not in owners
            size = 1000 + stamp if is_alloc else 0
            if is_alloc:
                owners[address] = size
            else:
                del owners[address]
            late = stamp // 10 + int(random.integers(0, 3))
            rounds[late].append((address, stamp, size, 1, is_alloc))
        latest = 0
        for each in rounds:
            random.shuffle(each)
            latest = max([latest, *(stamp for _, stamp, *_ in each)])
            view._add(np.array(each, EVENTS_DTYPE), latest)
        assert sorted(view._live["size"].tolist()) == sorted(owners.values())
        for _ in range(3):
            view._add(np.empty(0, EVENTS_DTYPE), latest)
        assert len(view._recent) == 0  # events are not kept for ever
        assert sorted(view._live["size"].tolist()) == sorted(owners.values())


# --- the interval of growth -----------------------------------------------------------------------


@pytest.mark.parametrize(("gained", "lost"), [(3000, 3000), (6000, 1000), (0, 4000), (500, 450)])
def test_intervals_of_growth_hold_the_truth(gained: int, lost: int) -> None:
    """By drawing objects of 2 KiB that are recorded with 1 - e^(-1/8)."""
    size, mean, draws = 2048, 16 << 10, 3000
    random = np.random.default_rng(gained)
    p = 1 - np.exp(-size / mean)
    largest = np.array([float(size)])

    def estimated(objects: int) -> list[Estimate]:
        counts = random.binomial(objects, p, draws).tolist()
        known = {n: estimate_sum(np.full(n, size), np.full(n, size), mean) for n in set(counts)}
        # A site with no object in one of the parts still could have had one there.
        known[0] = estimate_sum(np.zeros(1), largest, mean, largest)
        return [known[n] for n in counts]

    found = [growth_of(*both) for both in zip(estimated(gained), estimated(lost), strict=True)]
    truth = (gained - lost) * size
    held = np.mean([one.low <= truth <= one.high for one in found])
    assert 0.93 <= held <= 0.985
    assert np.mean([one.value for one in found]) == pytest.approx(
        truth, abs=6 * size * np.sqrt((gained + lost) * (1 - p) / p / draws)
    )
