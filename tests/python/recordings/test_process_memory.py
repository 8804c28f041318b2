# SPDX-License-Identifier: Apache-2.0
"""How much of a program's memory a recording covers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.recordings.process_memory import glibc_overhead, missing_memory, read_memory
from spanwise.recordings.programs import allocator_of, own_allocator

from tests.python.helpers import compiled, make_ops, needs_recorder, spanwise

PARTS = {
    "rss_peak": 100 << 20,
    "rss_ns": 5,
    "rss_malloc": 6 << 20,
    "rss_mapped": 50 << 20,
    "rss_data": 4 << 20,
    "rss_file": 30 << 20,
    "rss_recorder": 10 << 20,
    "rss_end_malloc": 3 << 20,
}
META = [(name, str(value)) for name, value in PARTS.items()]


def test_parts() -> None:
    memory = read_memory([("pid", "1"), *META])
    assert memory is not None
    assert memory.peak_rss_bytes == 90 << 20
    assert memory.private_bytes == 60 << 20
    assert memory.recorded_share == 0.1
    assert memory.to_dict()["mapped_bytes"] == 50 << 20
    assert str(memory) == (
        "peak RSS 90.0 MiB without the recorder; 10.0 % of the private memory (6.0 MiB of 60.0 MiB)"
        " came from malloc and is recorded"
    )


def test_a_peak_that_no_reading_was_near() -> None:
    memory = read_memory([*META, ("rss_peak", str(210 << 20))])
    assert memory is not None and not memory.covers_peak
    assert str(memory).startswith("peak RSS 200.0 MiB, of which 90.0 MiB was seen")
    assert missing_memory(memory, "php", ("PHP", "set X")) == ""


def test_growth_since_the_last_reading_is_divided() -> None:
    """63 MiB of the 107 are neither data, file nor recorder; they were 6 and 50 of 56."""
    memory = read_memory([*META, ("rss_series", f"0:{80 << 20} 9:{107 << 20}")])
    assert memory is not None
    assert (memory.malloc_bytes, memory.mapped_bytes) == (27 << 18, 225 << 18)
    assert memory.private_bytes == 67 << 20
    assert memory.series == ((0, 0), (9, 27 << 18))
    far = read_memory([*META, ("rss_peak", str(210 << 20)), ("rss_series", f"9:{107 << 20}")])
    assert far is not None and far.malloc_bytes == 6 << 20


@pytest.mark.parametrize("name", PARTS)
def test_without_one_part_nothing_is_known(name: str) -> None:
    assert read_memory([pair for pair in META if pair[0] != name]) is None
    assert read_memory([(key, "x" if key == name else value) for key, value in META]) is None


def test_what_is_missing() -> None:
    memory = read_memory(META)
    assert memory is not None
    said = missing_memory(memory, "php", ("PHP", "set X"))
    assert said == (
        "only 6.0 MiB of the 60.0 MiB private memory of php came from malloc and was recorded;"
        " 50.0 MiB came from PHP's own heap: set X"
    )
    assert missing_memory(memory, "a", ("", "")).endswith("50.0 MiB came from its own mmap calls")
    half = read_memory([*META, ("rss_malloc", str(54 << 20))])
    assert half is not None
    assert missing_memory(half, "php", ("PHP", "set X")) == ""
    peak = ("rss_peak", str(48 << 20))
    small = read_memory([*META, peak, ("rss_mapped", str(3 << 20)), ("rss_malloc", "4096")])
    assert small is not None
    assert missing_memory(small, "ls", ("", "")) == ""
    assert missing_memory(small, "a", ("Go", "")) != ""


def test_a_recording_without_a_reading() -> None:
    recording = sw.Recording.from_ops(make_ops((0, 0, 100)))
    assert recording.memory is None
    assert recording.missing == ""


@needs_recorder()
def test_a_program_that_maps_its_memory_itself(tmp_path: Path) -> None:
    """Every command that reads the recording says that most of the memory is not in it."""
    code = (
        "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n"
        "int main(void) {\n"
        "    char *p = mmap(0, 32 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
        "    memset(p, 1, 32 << 20);\n"
        "    char *q = malloc(10 << 20);\n"
        "    memset(q, 1, 4 << 20);\n"
        "    return p[0] + q[0] == 2 ? 0 : 1;\n}\n"
    )
    program, out = compiled(tmp_path, code, name="pools.c"), tmp_path / "a.swt"
    done = spanwise("record", "-o", out, "--", program)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("only 4.")
    memory = sw.Recording.open(out).memory
    assert memory is not None
    assert abs(memory.mapped_bytes - (32 << 20)) < 3 << 20
    assert abs(memory.malloc_bytes - (4 << 20)) < 1 << 20
    assert abs(memory.untouched_bytes - (6 << 20)) < 1 << 20
    said = sw.Recording.open(out).missing
    assert "of pools came from malloc" in said
    assert said in spanwise("ledger", out).stdout


MOVING = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 6, ROUNDS = 12, OBJECTS = 96 };

/* One thread's memory goes back to the system while another's grows. */
static void *grow_and_shrink(void *arg) {
    char *mine[OBJECTS];
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < OBJECTS; i++) mine[i] = memset(malloc(300000), 1, 300000);
        for (int i = 0; i < OBJECTS; i++) free(mine[i]);
    }
    return arg;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, grow_and_shrink, NULL);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
"""


@needs_recorder()
def test_memory_that_moves_while_it_is_read(tmp_path: Path) -> None:
    """A reading of smaps is no picture of one moment: malloc never has more than the process."""
    program, out = compiled(tmp_path, MOVING, "-pthread"), tmp_path / "a.swt"
    done = spanwise("record", "-o", out, "--", program)
    assert done.returncode == 0, done.stderr
    memory = sw.Recording.open(out).memory
    assert memory is not None
    assert 1 << 20 < memory.malloc_bytes <= memory.peak_rss_bytes * 65 // 64


TRIMMED = """
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long resident(void) {
    long all = 0, now = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (fscanf(f, "%ld %ld", &all, &now) != 2) return 0;
    fclose(f);
    return now * 4096;
}

static char *objects[200000];

/* Grows, shrinks, waits, and frees all before its end. */
int main(int argc, char **argv) {
    for (int i = 0; i < 200000; i++) objects[i] = memset(malloc(80 + i % 160), 1, 80);
    for (int i = 0; i < 200000; i++)
        if (i / 50 % 4 != 0) free(objects[i]);
    long before = resident();
    if (argc > 1) malloc_trim(0);
    printf("%ld", before - resident());
    usleep(argc > 1 ? 0 : 1000000);
    for (int i = 0; i < 200000; i++)
        if (i / 50 % 4 == 0) free(objects[i]);
    return argv[0] == NULL;
}
"""


@needs_recorder()
def test_what_a_trim_would_return(tmp_path: Path) -> None:
    """The pages without objects are those that malloc_trim returns, while the program waits."""
    program, out = compiled(tmp_path, TRIMMED), tmp_path / "a.swt"
    real = int(subprocess.run([program, "trim"], check=True, stdout=subprocess.PIPE).stdout)
    done = spanwise("record", "-o", out, "--", program)
    assert done.returncode == 0, done.stderr
    recording = sw.Recording.open(out)
    memory = recording.memory
    assert memory is not None and memory.retained is not None
    kept = memory.retained
    assert real > 12 << 20
    assert abs(kept.malloc_bytes - kept.pages_bytes - real) < real / 10
    assert 200_000 < kept.op < 400_000
    found = next(one for one in recording.advice() if one.kind == "trim")
    assert found.saves_bytes == kept.malloc_bytes - kept.pages_bytes
    assert "malloc_trim(0)" in found.change


QUIET = """
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OBJECTS = 65536, SIZE = 1008, KEPT_EVERY = 20, SPINNING = 64 };
static char *objects[OBJECTS];
static atomic_int stops;

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *spin(void *arg) {
    while (!stops) {}
    return arg;
}

/* For 5 s, calls are less than 100 ms apart. Then 64 MiB are allocated and 95 % freed, and for
 * 0.12 s nothing is called: the 32nd part of the run or less. With an argument the process ends
 * then; otherwise it frees some of the rest before. With "busy" threads compute meanwhile. */
int main(int argc, char **argv) {
    static pthread_t threads[SPINNING];
    int spinning = argc > 1 && argv[1][0] == 'b' ? SPINNING : 0;
    for (int i = 0; i < 500; i++) {
        for (int k = 0; k < 100; k++) free(malloc((size_t)k));
        usleep(10000);
    }
    for (int i = 0; i < OBJECTS; i++) objects[i] = memset(malloc(SIZE), 1, SIZE);
    for (int i = 0; i < OBJECTS; i++)
        if (i % KEPT_EVERY != 0) free(objects[i]);
    for (int i = 0; i < spinning; i++) pthread_create(&threads[i], NULL, spin, NULL);
    double cpu = -seconds(CLOCK_PROCESS_CPUTIME_ID), elapsed = -seconds(CLOCK_MONOTONIC);
    usleep(120000);
    cpu += seconds(CLOCK_PROCESS_CPUTIME_ID);
    elapsed += seconds(CLOCK_MONOTONIC);
    if (spinning != 0) fprintf(stderr, "processors: %.3f\\n", cpu / elapsed);
    stops = 1;
    for (int i = 0; i < spinning; i++) pthread_join(threads[i], NULL);
    if (argc > 1) return 0;
    for (int i = 0; i < 64; i++) free(objects[i * KEPT_EVERY]);
    return 0;
}
"""


@needs_recorder()
@pytest.mark.parametrize("arguments", [(), ("end",)])
def test_a_short_quiet_phase_after_a_long_run(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Whether the first call after it notices it, or the end of the process."""
    program, out = compiled(tmp_path, QUIET, "-pthread"), tmp_path / "a.swt"
    done = spanwise("record", "-o", out, "--", program, *arguments)
    assert done.returncode == 0, done.stderr
    memory = sw.Recording.open(out).memory
    assert memory is not None and memory.retained is not None
    kept, objects = memory.retained, 65536
    assert kept.malloc_bytes == pytest.approx(objects * 1024, rel=0.1)
    assert kept.requested_bytes == pytest.approx(objects / 20 * 1008, rel=0.1)
    assert kept.pages_bytes == pytest.approx(objects / 20 * 4096, rel=0.1)
    assert kept.op == pytest.approx(500 * 200 + objects * 1.95, abs=100)


@needs_recorder()
def test_a_program_that_computes_does_not_pause(tmp_path: Path) -> None:
    """Without it the moment of 64 MiB for 3 would be the result, as above."""
    program, out = compiled(tmp_path, QUIET, "-pthread"), tmp_path / "a.swt"
    for _ in range(3):
        done = spanwise("record", "-f", "-o", out, "--", program, "busy")
        assert done.returncode == 0, done.stderr
        (processors,) = re.findall(r"^processors: (.*)$", done.stderr, re.MULTILINE)
        if float(processors) > 0.9:
            break
    else:
        pytest.skip("other processes use the processors")
    memory = sw.Recording.open(out).memory
    assert memory is not None and memory.malloc_bytes > 64 << 20
    assert memory.retained is None or memory.retained.malloc_bytes < 32 << 20


def test_programs_with_an_allocator_of_their_own(tmp_path: Path) -> None:
    assert own_allocator(sys.executable).startswith("CPython's pymalloc")
    assert own_allocator("/bin/ls") == ""
    assert own_allocator(str(tmp_path / "missing")) == ""
    php = tmp_path / "php8.2"
    php.write_bytes(Path("/bin/ls").read_bytes())
    php.chmod(0o755)
    assert own_allocator(str(php)).startswith("PHP's own heap")


def test_allocators_by_their_libraries() -> None:
    assert allocator_of(["/lib/libc.so.6", "/lib/libjemalloc.so.2"]) == "jemalloc"
    assert allocator_of(["/lib/libtcmalloc_minimal.so.4"]) == "tcmalloc"
    assert allocator_of(["/lib/libc.so.6"]) == "glibc"


@pytest.mark.parametrize(
    ("size", "chunk"),
    [(0, 32), (1, 32), (24, 32), (25, 48), (40, 48), (41, 64), (4096, 4112), (131048, 131056)],
)
def test_chunks_of_glibc(size: int, chunk: int) -> None:
    """By hand: 8 bytes of header, multiples of 16, at least 32."""
    assert glibc_overhead([size]).tolist() == [chunk - size]


@pytest.mark.parametrize(
    ("size", "pages"), [(131049, 32), (131056, 32), (131057, 33), (131072, 33), (1 << 20, 257)]
)
def test_mapped_chunks_of_glibc(size: int, pages: int) -> None:
    """By hand: a chunk of 128 KiB or more is whole pages, with a header of 16 bytes."""
    assert glibc_overhead([size]).tolist() == [4096 * pages - size]
