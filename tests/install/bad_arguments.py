# SPDX-License-Identifier: Apache-2.0
"""Calls every function of the C library with a bad pointer for each of its pointers in turn.

The functions come from tests/data/interface.txt, so a new one is covered from its first day. Each
call runs in a child process, with valid arguments but one:

- NULL: the call may return or report misuse, but not crash; a function that returns a status
  returns SW_INVALID if its handle, or the place for what it creates, is NULL;
- a handle that has ended: reported as STALE_HANDLE;
- memory that is no handle, and a handle of another kind: reported as FOREIGN_HANDLE.

Example:
    python3 tests/install/bad_arguments.py cc build/release/libspanwise.so
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^name (sw_\w+): (.*?) ?\((.*)\)$")

MAY_CRASH = {
    **dict.fromkeys(
        ("sw_alloc_slow", "sw_free_slow", "sw_cache_emptied", "sw_memory_push_slow"),
        "continues inline code",
    ),
    **dict.fromkeys(("sw_reader_skip_slow",), "continues inline code"),
    "sw_cache_alloc": "docs/decisions/0017-interface.md",
    "sw_cache_free": "docs/decisions/0017-interface.md",
    "sw_gc_write": "writes to the address",
    "sw_gc_write_all": "writes to the address",
}
"""Function -> why a NULL is not looked for."""

KEEPS_HANDLES = {"sw_cache_emptied", "sw_recyclable_init"}
"""The first continues inline code, which has looked; the second uses its handle later."""

HAS_NO_LOOK = {
    *("sw_heap_alloc", "sw_heap_alloc_aligned", "sw_heap_realloc", "sw_heap_free"),
    *("sw_heap_free_sized", "sw_cache_alloc", "sw_cache_alloc_aligned", "sw_cache_realloc"),
    *("sw_cache_free", "sw_arena_alloc", "sw_arena_make_slice", "sw_arena_alloc_typed"),
}
"""Fast functions, which do not look whether a handle is one before they use it."""

HANDLES = {
    "sw_heap": "sw_heap_create(NULL, &out)",
    "sw_cache": "sw_cache_open(heap(), &out)",
    "sw_gc": "sw_gc_create(NULL, &out)",
    "sw_gc_shadow": "sw_gc_shadow_create(make_gc(), &out)",
    "sw_arena": "sw_arena_create(NULL, &out)",
    "sw_pool": "sw_pool_create(pool_options(), &out)",
    "sw_range": "sw_range_create(1000, NULL, &out)",
    "sw_scalable": "sw_scalable_create(NULL, &out)",
    "sw_slabs": "sw_slabs_create(NULL, &out)",
    "sw_stack": "sw_stack_create(NULL, &out)",
    "sw_tracker": "sw_tracker_create(NULL, &out)",
    "sw_runner": "sw_runner_create(heap(), &out)",
    "sw_profile": "sw_profile_create(0, &out)",
    "sw_optimizer": "sw_optimizer_create(optimize_options(), weights, &out)",
    "sw_pymalloc": "sw_pymalloc_create(pymalloc_options(), &out)",
    "sw_table": 'sw_table_create("two", 8192, specs, 2, &out)',
    "sw_trace": "sw_trace_open(recording(), 0, &out)",
    "sw_trace_writer": 'sw_trace_create("new.swt", &out)',
}
"""Kind -> the call that makes one."""

ENDS = {
    kind: f"{kind}_destroy"
    for kind in HANDLES
    if kind not in ("sw_cache", "sw_arena", "sw_trace", "sw_trace_writer")
}
ENDS |= {"sw_cache": "sw_cache_close", "sw_arena": "sw_arena_free"}
ENDS |= {"sw_trace": "sw_trace_close", "sw_trace_writer": "sw_trace_abort"}
"""Kind -> the function that ends one."""

SPECIAL = {
    ("sw_trace_create", "const char *"): '"other.swt"',
    ("sw_trace_open", "const char *"): "recording()",
    ("sw_trace_finish", "const char *"): "recording()",
    ("sw_trace_salvage", "const char *"): "recording()",
    ("sw_optimizer_create", "const double *"): "weights",
    ("sw_optimizer_create_bounded", "const double *"): "weights",
    ("sw_table_create", "const sw_class_spec *"): "specs",
    ("sw_gc_add_type", "const sw_gc_type *"): "&node",
    ("sw_gc_type_allocator_begin", "uint32_t"): "make_type(given0)",
    ("sw_gc_new", "uint32_t"): "make_type(given0)",
    ("sw_gc_build", "uint32_t"): "0",
    ("sw_pool_put", "size_t"): "64",
    ("sw_pool_put", "void *"): "sw_malloc(64)",
    ("sw_gc_set_pace", "const sw_gc_pace *"): "sized(sizeof(sw_gc_pace))",
    ("sw_heap_options_fill", "uint64_t"): "64",
    ("sw_heap_default_init", "const sw_heap_options *"): "NULL",
}
"""Arguments that their type alone does not give."""

POSITIONS = {
    ("sw_table_create", 1): "8192",
    ("sw_table_create", 3): "2",
    ("sw_optimizer_create", 0): "optimize_options()",
    ("sw_pymalloc_create", 0): "pymalloc_options()",
    ("sw_optimizer_create_bounded", 0): "optimize_options()",
}
"""The same by the number of the argument."""

PRELUDE = r"""
#include <spanwise/spanwise.h>
#include <spanwise/allocator_vtable.h>
#include <spanwise/backing.h>
#include <spanwise/fast.h>
#include <spanwise/gc_fast.h>
#include <spanwise/reader.h>
#include <spanwise/recyclable.h>
#include <spanwise/scalable.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static double weights[SW_PROFILE_SIZES];
static const sw_class_spec specs[] = {{16, 1, 0}, {48, 1, 0}};
static uint64_t first = 1;
static const sw_gc_type node = {"node", 16, &first};

static void give(int status, const char *what) {
    if (status == SW_OK) return;
    fprintf(stderr, "%s: %s\n", what, sw_last_error()->message);
    _exit(3);
}
static void *scratch(void) { return calloc(1, 1 << 16); }
/* A struct of which the first field may be struct_bytes. */
static void *sized(size_t bytes) {
    uint32_t *p = scratch();
    *p = (uint32_t)bytes;
    return p;
}
static sw_heap *heap(void) {
    sw_heap *out;
    give(sw_heap_create(NULL, &out), "heap");
    return out;
}
static sw_gc *make_gc(void) {
    sw_gc *out;
    give(sw_gc_create(NULL, &out), "gc");
    return out;
}
static uint32_t make_type(sw_gc *gc) {
    uint32_t id = 0;
    if (gc != NULL) give(sw_gc_add_type(gc, &node, &id), "type");
    return id;
}
static sw_pool_options *pool_options(void) {
    static sw_pool_options options;
    sw_pool_options_init(&options);
    return &options;
}
static sw_optimize_options *optimize_options(void) {
    static sw_optimize_options options;
    sw_optimize_options_init(&options);
    weights[16] = 1;
    return &options;
}
static sw_pymalloc_options *pymalloc_options(void) {
    static sw_pymalloc_options options = {.arena_bytes = 1 << 20, .pool_bytes = 1 << 14};
    return &options;
}
static sw_memory *memory(void) {
    sw_memory *out = scratch();
    sw_memory_init(out, sw_allocator_libc());
    return out;
}
static sw_recyclable *recyclable(void) {
    sw_scalable *scalable;
    sw_recyclable *out = scratch();
    give(sw_scalable_create(NULL, &scalable), "scalable");
    sw_recyclable_init(out, scalable);
    return out;
}
static const char *recording(void) {
    sw_trace_writer *writer;
    give(sw_trace_create("some.swt", &writer), "writer");
    give(sw_trace_commit(writer, NULL), "commit");
    return "some.swt";
}
static void *garbage(void) {
    static _Alignas(4096) unsigned char page[16384];
    for (size_t i = 0; i < sizeof page; i++) page[i] = 0x55;
    return page;
}
static int wanted; /* -1: any misuse may be reported, or none */
static sw_fault_action named(const sw_fault *fault, void *arg) {
    (void)arg;
    _exit(wanted < 0 || (int)fault->code == wanted ? 0 : 5);
}
"""

RUN = r"""
static int run(const char *what, int (*call)(void), int misuse, int wants_invalid) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        wanted = misuse;
        sw_set_fault_handler(named, NULL);
        int status = call();
        _exit(wants_invalid && status != SW_INVALID ? 4 : misuse >= 0 ? 5 : 0);
    }
    int ended = 0;
    if (child < 0 || waitpid(child, &ended, 0) != child) return 1;
    if (WIFSIGNALED(ended)) printf("%s: signal %d\n", what, WTERMSIG(ended));
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 3) printf("%s: no arguments\n", what);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 4) printf("%s: not SW_INVALID\n", what);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 5) printf("%s: is not reported\n", what);
    return ended != 0;
}
"""


def parameters(text: str) -> list[str]:
    """Split the types between the outer parentheses at top-level commas."""
    found, depth, at = [], 0, 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            found.append(text[at:i].strip())
            at = i + 1
    found.append(text[at:].strip())
    return [] if found == ["void"] else found


def functions() -> list[tuple[str, str, list[str]]]:
    """Return name, result and parameter types of each public function."""
    lines = (ROOT / "tests/data/interface.txt").read_text(encoding="utf-8").splitlines()
    found = [LINE.match(line) for line in lines]
    return [(m[1], m[2], parameters(m[3])) for m in found if m is not None]


def is_pointer(kind: str) -> bool:
    return kind.endswith("*") or kind.endswith("_fn")


def plain(kind: str) -> str:
    return kind.replace("const ", "").replace("volatile ", "").removesuffix("*").strip()


def value(name: str, kind: str) -> str:
    """Return a valid argument of the type."""
    special = SPECIAL.get((name, kind))
    if special is not None:
        return special
    if not is_pointer(kind):
        numbers = ("size_t", "unsigned", "int", "uint32_t", "uint64_t", "int64_t")
        return "1" if kind in numbers else f"({kind}){{0}}"
    base = plain(kind)
    if base in HANDLES and not kind.endswith("* *"):
        return f"make_{base}()"
    made = {"sw_memory": "memory()", "sw_recyclable": "recyclable()", "char": '"name"'}
    if base in made:
        return made[base]
    if base.endswith("_options") and kind.startswith("const "):
        return "NULL"
    if base.endswith("_fn") or ")" in kind or base.endswith("sw_fault_handler"):
        return "NULL"
    return f"sized(sizeof({base}))" if base.startswith("sw_") and "*" not in base else "scratch()"


def needs(name: str, result: str, kind: str, at: int) -> bool:
    """Return whether a NULL there is SW_INVALID: no place for what is made, or no handle."""
    if kind.endswith("* *"):
        return re.search(r"_create(_bounded)?$|_open$", name) is not None
    handle = result == "sw_status" and at == 0 and plain(kind) in HANDLES
    return handle and name not in ENDS.values()


def bad_values(name: str, kind: str) -> list[tuple[str, str, str]]:
    """Return how a pointer is bad, its value in C, and the misuse that is reported."""
    found = [] if name in MAY_CRASH else [("NULL", "NULL", "-1")]
    base = plain(kind)
    skipped = name in KEEPS_HANDLES or name.endswith("_slow")
    if skipped or base not in HANDLES or kind.endswith("* *"):
        return found
    found.append(("ended", f"ended_{base}()", "SW_MISUSE_STALE_HANDLE"))
    if name not in HAS_NO_LOOK:
        names = list(HANDLES)
        other = names[(names.index(base) + 1) % len(names)]
        foreign = "SW_MISUSE_FOREIGN_HANDLE"
        found += [("garbage", "garbage()", foreign), (other, f"make_{other}()", foreign)]
    return found


def case(number: int, name: str, result: str, kinds: list[str], *, at: int, bad: str) -> str:
    """Return a C function that makes the call."""
    lines = [f"static int case_{number}(void) {{"]
    for i, kind in enumerate(kinds):
        argument = bad if i == at else POSITIONS.get((name, i)) or value(name, kind)
        declared = "void *" if is_pointer(kind) else f"{kind} "
        lines.append(f"    {declared}given{i} = {argument};")
    call = f"{name}({', '.join(f'given{i}' for i in range(len(kinds)))})"
    status = result == "sw_status"
    lines.append(f"    return (int){call};" if status else f"    (void){call};\n    return 0;")
    return "\n".join([*lines, "}"])


def program() -> tuple[str, int]:
    """Return the C program, and its number of calls."""
    parts = [PRELUDE]
    for kind, call in HANDLES.items():
        parts.append(
            f"static {kind} *make_{kind}(void) {{\n    {kind} *out = NULL;\n"
            f'    give({call}, "{kind}");\n    return out;\n}}\n'
            f"static void *ended_{kind}(void) {{\n    {kind} *out = make_{kind}();\n"
            f"    {ENDS[kind]}(out);\n    return out;\n}}"
        )
    parts.append(RUN)
    rows: list[str] = []
    for name, result, kinds in functions():
        for i, kind in enumerate(kinds):
            for how, bad, misuse in bad_values(name, kind) if is_pointer(kind) else ():
                parts.append(case(len(rows), name, result, kinds, at=i, bad=bad))
                invalid = how == "NULL" and needs(name, result, kind, i)
                call = f'"{name}, argument {i + 1}: {how}", case_{len(rows)}'
                rows.append(f"    failed += run({call}, {misuse}, {int(invalid)});")
    body = "\n".join(rows)
    parts.append(f"int main(void) {{\n    int failed = 0;\n{body}\n    return failed != 0;\n}}\n")
    return "\n".join(parts), len(rows)


def main(compiler: str, library: str) -> int:
    text, calls = program()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "calls.c"), Path(folder, "calls")
        source.write_text(text, encoding="utf-8")
        where = Path(library).resolve().parent
        flags = ["-std=gnu11", "-w", "-O0", f"-I{ROOT / 'include'}", f"-Wl,-rpath,{where}"]
        subprocess.run([compiler, *flags, str(source), library, "-o", str(out)], check=True)
        ended = subprocess.run([str(out)], cwd=folder, check=False)
    print(f"{calls} calls with a bad pointer")
    return ended.returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} COMPILER LIBRARY")
    sys.exit(main(sys.argv[1], sys.argv[2]))
