# SPDX-License-Identifier: Apache-2.0
"""Allocator wrappers are folded: call sites of C++ and Rust programs begin in the program."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _format
from spanwise.recordings.live_sites import LiveSite
from spanwise.recordings.names import (
    Folding,
    entry,
    in_dependencies,
    in_runtime_library,
    is_wrapper,
    plain_function,
)
from spanwise.recordings.sites import Site, Sites, callers

from tests.python.helpers import compiled, needs_recorder, spanwise

RUSTC = shutil.which("rustc") or shutil.which("rustc", path=str(Path.home() / ".cargo/bin"))

CPLUSPLUS = r"""
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>
namespace shop {
struct Item { std::string name; std::vector<int> prices; };
template <typename T> struct Cache {
    std::unordered_map<std::string, T> kept;
    void put(const std::string &key, const T &value) { kept[key] = value; }
};
class Store {
  public:
    void add(int i) {
        Item item;
        item.name = "item number " + std::to_string(i) + ", long enough for the heap";
        for (int j = 0; j < 10; j++) item.prices.push_back(i * j);
        by_id[i] = item;
        cache.put(item.name, item);
    }
    std::shared_ptr<Item> best() { return std::make_shared<Item>(by_id.begin()->second); }
    std::unique_ptr<int[]> totals() { return std::make_unique<int[]>(by_id.size()); }
    std::map<int, Item> by_id;
    Cache<Item> cache;
};
static std::vector<std::string> words(const std::string &text) {
    std::istringstream stream(text);
    std::vector<std::string> found;
    for (std::string word; stream >> word;) found.push_back(word + word + word + word + word);
    return found;
}
}
template <int N> static std::vector<char> text() { return std::vector<char>(100 + N); }
struct Node { Node *next = nullptr; char data[40]; };
int main(int count, char **) {
    shop::Store store;
    for (int i = 0; i < 300 * count; i++) store.add(i);
    auto best = store.best();
    auto totals = store.totals();
    auto split = shop::words("several words that are cut at their spaces");
    auto t0 = text<0>(), t1 = text<1>(), t2 = text<2>(), t3 = text<3>(), t4 = text<4>(),
         t5 = text<5>(), t6 = text<6>(), t7 = text<7>();
    Node *list = nullptr;
    for (int i = 0; i < 50; i++) { auto *node = new Node; node->next = list; list = node; }
    std::vector<std::vector<double>> matrix(20, std::vector<double>(30));
    auto each = [&](int n) { return std::string(n, 'x'); };
    std::vector<std::string> strings;
    for (int i = 100; i < 140; i++) strings.push_back(each(i));
    int sizes = t0[0] + t1[0] + t2[0] + t3[0] + t4[0] + t5[0] + t6[0] + t7[0];
    return sizes + best->name.empty() + split.empty() + !totals + matrix.empty() + !list;
}
"""

RUNTIME_C = r"""
#define _GNU_SOURCE
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static void show(int n) { printf("%d lines\n", n); }
static void sort(int *values) { qsort(values, 4000, sizeof *values, compare); }
static char *next_line(FILE *file) {
    char *text = NULL;
    size_t bytes = 0;
    return getline(&text, &bytes, file) < 0 ? NULL : text;
}
static FILE *open_it(const char *path) { return fopen(path, "r"); }
static char *copied(const char *text) { return strdup(text); }
static char *formatted(int n) {
    char *text = NULL;
    return asprintf(&text, "%0100d", n) < 0 ? NULL : text;
}
static void choose(void) { setlocale(LC_ALL, "C.UTF-8"); }
int main(int count, char **words) {
    choose();
    FILE *file = open_it(words[count - 1]);
    char *lines[8] = {next_line(file), copied("a text"), formatted(count)};
    int *values = calloc(4000, sizeof *values);
    sort(values);
    show(lines[0] != NULL);
    return values[0];
}
"""


RUNTIME_CPLUSPLUS = r"""
#include <fstream>
#include <iostream>
#include <locale>
#include <sstream>
static std::string read(const char *path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line + " is the first of all lines";
}
int main(int count, char **words) {
    std::locale::global(std::locale("C.UTF-8"));
    std::ostringstream text;
    text << "a text that is too long for the object itself: " << count;
    std::cout << (text.str() + read(words[count - 1])).size() << std::endl;
}
"""

RUST = r"""
use std::collections::{BTreeMap, HashMap};
#[derive(Clone)]
struct Item { name: String, prices: Vec<u64> }
struct Store { by_id: BTreeMap<u64, Item>, by_name: HashMap<String, Box<Item>> }
impl Store {
    fn add(&mut self, i: u64) {
        let mut prices = Vec::new();
        for j in 0..10 { prices.push(i * j); }
        let item = Item { name: format!("item number {}", i), prices };
        self.by_id.insert(i, item.clone());
        self.by_name.insert(item.name.clone(), Box::new(item));
    }
}
fn words(text: &str) -> Vec<String> { text.split(' ').map(|w| w.to_uppercase()).collect() }
macro_rules! texts { ($($name:ident $n:literal)*) => {
    $( #[inline(never)] fn $name() -> String { "abc".repeat($n) } )*
    fn texts() -> Vec<String> { vec![$($name()),*] }
} }
texts!(first 100 second 101 third 102 fourth 103 fifth 104 sixth 105 seventh 106 eighth 107);
fn main() {
    let mut store = Store { by_id: BTreeMap::new(), by_name: HashMap::new() };
    for i in 0..300 { store.add(i); }
    let found = words("several words that are cut at their spaces");
    let joined = found.join("-");
    let matrix: Vec<Vec<f64>> = (0..20).map(|n| vec![0.5; n + 1]).collect();
    let copies: Vec<Item> = store.by_id.values().cloned().collect();
    std::mem::forget((found, matrix, copies, texts()));
    println!("{} {}", joined.len(), store.by_id.len());
    std::mem::forget(store);
}
"""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def own_share(sites: Iterable[Site | LiveSite], files: str) -> float:
    """Rows as they are shown of which the first name is in the program's own source."""
    rows = [site.names[0] for site in sites if site.id]
    return sum(bool(re.search(rf"\({files}:\d+\)$", name)) for name in rows) / len(rows)


@pytest.fixture(scope="module")
def cplusplus(tmp_path_factory: pytest.TempPathFactory) -> sw.Recording:
    folder = tmp_path_factory.mktemp("cplusplus")
    made = compiled(folder, CPLUSPLUS, "-O2", "-g", "-std=c++17", name="shop.cc")
    return sw.record([made], folder / "shop.swt", stacks=16)


@pytest.fixture(scope="module")
def rust(tmp_path_factory: pytest.TempPathFactory) -> sw.Recording:
    if RUSTC is None:
        pytest.skip("no Rust compiler")
    folder = tmp_path_factory.mktemp("rust")
    (folder / "store.rs").write_text(RUST, "utf-8")
    made = folder / "store"
    subprocess.run([RUSTC, "-O", "-g", "-o", made, folder / "store.rs"], check=True)
    return sw.record([made], folder / "store.swt", stacks=16)


@needs_recorder()
def test_sites_of_cplusplus_begin_in_the_program(cplusplus: sw.Recording) -> None:
    """All rows but one: the pool for exceptions that libstdc++ makes as it is loaded."""
    live = cplusplus.live_sites("c16", "peak").merged()
    for sites in (live, cplusplus.sites.merged()):
        assert len(sites) >= 15
        assert own_share(sites, r"shop\.cc") >= 0.9, [site.names[:2] for site in sites]
    assert "operator new" in live[0].full_names[0]


@needs_recorder()
def test_sites_of_rust_begin_in_the_program(rust: sw.Recording) -> None:
    """All rows but one: what Rust's runtime makes before main."""
    for sites in (rust.live_sites("c16").merged(), rust.sites.merged()):
        assert len(sites) >= 15
        assert own_share(sites, r"store\.rs") >= 0.9, [site.names[:2] for site in sites]


@needs_recorder()
def test_sites_in_libc_begin_in_the_program(tmp_path: Path) -> None:
    """In every table; the functions of libc that were called are named."""
    made = compiled(tmp_path, RUNTIME_C, "-O1", "-g", "-fno-inline", name="app.c")
    found = sw.record([made, tmp_path / "app.c"], tmp_path / "it.swt", stacks=16)
    sites = found.sites.merged()
    assert own_share(sites, r"app\.c") >= 0.9, [site.full_names for site in sites]
    through = {site.names[0].split()[0]: site.through for site in sites}
    assert through["main"] == ""  # it called calloc
    expected = {
        **{"show": "printf", "copied": "strdup", "open_it": "fopen", "formatted": "asprintf"},
        **{"choose": "setlocale"},
    }
    assert expected.items() <= through.items()
    assert through["sort"] in ("qsort", "qsort_r") and through["next_line"][:4] == "getd"
    rows = repr(found.sites)
    assert re.search(r"  show \(app\.c:\d+\) through printf < main\n", rows), rows
    pinning = found.span_pinning("site", at="end")
    assert own_share(pinning._named, r"app\.c") >= 0.9
    assert any(label.startswith("open_it (app.c:") for label in pinning.labels())
    assert {row["through"] for row in pinning.to_dict()["groups"]} >= {"fopen", "strdup"}
    full = found.sites.named(full_stacks=True)
    assert {site.through for site in full} == {""}
    assert not own_share(full, r"app\.c") >= 0.9


@needs_recorder()
def test_sites_in_the_cplusplus_library_begin_in_the_program(tmp_path: Path) -> None:
    """Also with standard templates that were instantiated in the program itself."""
    made = compiled(tmp_path, RUNTIME_CPLUSPLUS, "-O1", "-g", "-fno-inline", name="app.cc")
    sites = sw.record([made, tmp_path / "app.cc"], tmp_path / "it.swt", stacks=16).sites.merged()
    called = [site for site in sites if not any("call_init" in name for name in site.full_names)]
    assert len(called) >= 4 and own_share(called, r"app\.cc") >= 0.9, called
    through = {site.through for site in called}
    assert {"std::locale::locale", "std::basic_ifstream::basic_ifstream"} & through
    assert not any("operator new" in one or "::_" in one for one in through)


@needs_recorder()
def test_sums_are_those_of_the_raw_sites(cplusplus: sw.Recording) -> None:
    """Merging adds up; the text has no two equal rows, and rows that differ say in what."""
    live = cplusplus.live_sites("c16", "peak")
    merged = live.merged()
    assert len({site.names for site in merged}) == len(merged) < len(live)
    for name in ("live_objects", "requested_bytes", "roundup_bytes", "kept_free_bytes"):
        assert sum(getattr(s, name) for s in merged) == sum(getattr(s, name) for s in live.sites)
    kept = [site.waste_bytes for site in merged]
    assert kept == sorted(kept, reverse=True)
    rows = [line.split("  ")[-1] for line in repr(live).splitlines()[3:] if "more" not in line]
    assert len(rows) == len(set(rows)) >= 10


@needs_recorder()
def test_full_stacks_and_frames_to_hide(cplusplus: sw.Recording) -> None:
    live = cplusplus.live_sites("c16")
    for site in live.named(full_stacks=True):
        assert site.names == site.full_names
    (first,) = (s for s in live.merged() if s.names[0].startswith("shop::Cache"))
    assert first.names[1].startswith("shop::Store::add")
    hidden = live.named(hide_frames=["^shop::Cache<"])
    assert not any(site.names[0].startswith("shop::Cache") for site in hidden)
    assert [site.full_names for site in hidden] == [site.full_names for site in live]
    with pytest.raises(sw.InvalidError, match="invalid regular expression"):
        live.named(hide_frames=["("])


@needs_recorder()
def test_diff_names_sites(cplusplus: sw.Recording, tmp_path: Path) -> None:
    """With twice as many items; rows have different names, and add up to the difference."""
    program = Path(cplusplus.executable)
    more = sw.record([program, "more"], tmp_path / "more.swt", stacks=16)
    both = str(cplusplus.path), "more.swt"
    done = spanwise("diff", *both, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "(shop.cc:12)" in done.stdout and "+0x" not in done.stdout
    rows = json.loads(spanwise("diff", *both, "--json", cwd=tmp_path).stdout)["sites"]
    assert len({tuple(row["names"]) for row in rows}) == len(rows) > 3
    requested = [one.live_sites("c16").ledger.requested_bytes for one in (cplusplus, more)]
    assert sum(row["change"] for row in rows) == requested[1] - requested[0]


@needs_recorder()
def test_commands_fold(cplusplus: sw.Recording, tmp_path: Path) -> None:
    """The same names in all of them, and the options that change them."""

    def run(*words: str, status: int = 0) -> str:
        done = spanwise(words[0], str(cplusplus.path), *words[1:], cwd=tmp_path)
        assert done.returncode == status, done.stderr
        return done.stdout + done.stderr

    sites, first = ("ledger", "--sites"), "  shop::Cache"  # a row's name, after its numbers
    assert first in run(*sites) and "operator new" not in run(*sites)
    assert first not in run(*sites, "--full-stacks")
    assert first not in run(*sites, "--hide-frames", "^shop::Cache")
    assert "invalid regular expression" in run(*sites, "--hide-frames", "(", status=2)
    found = []
    for options in ((), ("--full-stacks",)):
        run("export", "--to", "collapsed", "-o", "a.txt", *options)
        lines = [line.rpartition(" ") for line in (tmp_path / "a.txt").read_text().splitlines()]
        found.append(sum(int(count) for _, _, count in lines))
        names = {stack.rpartition(";")[2] for stack, _, _ in lines}
        assert any(name.startswith("operator new") for name in names) == bool(options)
    assert found == [cplusplus.live_sites("c16").ledger.requested_bytes] * 2
    cplusplus.to_html(tmp_path / "a.html", "c16")
    shown = (tmp_path / "a.html").read_text("utf-8").partition('<section id="call-sites">')[2]
    shown = shown.partition("</section>")[0]
    folded = re.sub(r"<details>.*?</details>", "", shown, flags=re.DOTALL)
    assert "operator new" in shown and "operator new" not in folded
    assert json.loads(run("diff", str(cplusplus.path), "--json"))["sites"] == []


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "plain"),
    [
        ("operator new[](unsigned long)", "operator new"),
        ("std::vector<int, std::allocator<int>> user::make<int>(int)", "user::make"),
        ("std::enable_if<true, int>::type* ns::f<int>(int)", "ns::f"),
        ("main::{lambda(int, int)#1}::operator()(int, int) const", "main::{lambda#1}::operator()"),
        ("(anonymous namespace)::Cache<int>::insert(int)", "{anonymous}::Cache::insert"),
        ("Foo::operator<(Foo const&) const", "Foo::operator<"),
        ("std::ostream& operator<< <int>(std::ostream&, int)", "operator<<"),
        ("Foo::operator std::string() const", "Foo::operator std::string"),
        ("copy.constprop.0", "copy"),
        ("alloc::slice::<impl [T]>::to_vec", "alloc::slice::to_vec"),
        (
            "<shop::Item<T> as core::clone::Clone>::clone",
            "<shop::Item as core::clone::Clone>::clone",
        ),
        ("shop::main::{{closure}}", "shop::main::{{closure}}"),
        *((name, name) for name in ("main", "<module>", "load.<locals>.<listcomp>")),
    ],
)
def test_plain_functions(function: str, plain: str) -> None:
    assert plain_function(function) == plain


@pytest.mark.parametrize(
    "function",
    [
        *("malloc", "__libc_calloc", "strdup", "__GI___strdup", "g_malloc0", "g_strdup_printf"),
        *(
            "xmalloc",
            "jv_mem_alloc",
            "xstrdup",
            "x2realloc",
            "zmalloc",
            "ztrymalloc_usable_internal",
            "zstrdup",
        ),
        *("PyMem_RawMalloc", "_PyMem_DebugRawAlloc", "PyObject_Malloc", "_PyObject_GC_NewVar"),
        *("je_malloc", "_rjem_malloc", "mi_malloc_aligned", "tc_new", "CRYPTO_zalloc", "_emalloc"),
        *("operator new(unsigned long)", "void std::vector<A>::_M_realloc_insert<A>(A&&)"),
        *("__rust_alloc", "__rdl_realloc", "__rg_alloc", "alloc::alloc::alloc"),
        *("hashbrown::raw::RawTable<T,A>::reserve_rehash", "alloc::raw_vec::RawVec<T>::grow_one"),
        "<alloc::vec::Vec<T> as core::clone::Clone>::clone",
        "<T as alloc::slice::<impl [T]>::to_vec_in::ConvertVec>::to_vec",
        "libstdc++.so.6+0xa57ba (stripped)",
    ],
)
def test_wrappers(function: str) -> None:
    assert is_wrapper(function)


@pytest.mark.parametrize(
    "function",
    [
        *("main", "mallocator", "my_table", "realloc_table", "sdsnewlen", "getlines", "PyDict_New"),
        *("std::vector<int> user::make<int>(int)", "user::std::f()", "allocate(int)"),
        "<shop::Item as core::clone::Clone>::clone",
        "<alloc::vec::Vec<T> as shop::Price>::total",
        "shop::main::{{closure}}",
        "libz.so.1+0x12 (stripped)",
    ],
)
def test_functions_of_programs(function: str) -> None:
    assert not is_wrapper(function) and not is_wrapper(f"{function} (a.c:3)")


def test_folding_by_hand() -> None:
    stack = ("malloc in libc.so.6", "xmalloc (x.c:9)", "load (a.c:3)", "xmalloc (x.c:1)", "main")
    assert Folding().of(stack) == stack[2:]
    assert Folding(full_stacks=True).of(stack) == stack
    assert Folding(hide_frames=("^lo", "nothing")).of(stack) == stack[4:]
    assert Folding().of(stack[:2]) == stack[1:2]  # the outermost, which is next to the program
    assert Folding().of(()) == ()


@pytest.mark.parametrize(
    ("file", "is_one"),
    [
        *((one, True) for one in ("libc.so.6", "libc-2.31.so", "ld-linux-x86-64.so.2")),
        *((one, True) for one in ("ld-2.31.so", "libstdc++.so.6.0.30", "libgcc_s.so.1")),
        *((one, True) for one in ("libc.musl-x86_64.so.1", "ld-musl-aarch64.so.1")),
        *((one, True) for one in ("libc++.so.1.0", "libc++abi.so.1", "libm.so.6")),
        *((one, False) for one in ("libc-client.so.2007", "libz.so.1", "libcurl.so.4", "app")),
    ],
)
def test_runtime_libraries(file: str, is_one: bool) -> None:
    assert in_runtime_library(f"/usr/lib/{file}+0x1234") is is_one


def test_frames_of_runtime_libraries_are_folded_by_hand() -> None:
    """All in front of another module, but not if there is none."""
    stack = ("outstring (a.c:1)", "__printf in libc.so.6", "show (app.c:3)", "_start in app")
    runtime = (True, True, False, False)
    assert Folding().of(stack, runtime) == stack[2:]
    assert entry(stack, stack[2:], runtime) == "printf"
    assert Folding(full_stacks=True).of(stack, runtime) == stack
    assert entry(stack, stack, runtime) == ""
    alone = ("malloc", "call_init in ld.so", "_dl_init in ld.so", "_start in app")
    assert Folding().of(alone, (True, True, True, False)) == alone[1:]  # _start is not called
    assert entry(alone, alone[1:], (True, True, True, False)) == ""
    called = (*stack[:3], "main (app.c:9)")
    hidden = Folding(hide_frames=("^show$",)).of(called, (*runtime[:3], False))
    assert hidden == ("main (app.c:9)",)
    assert entry((*stack[:3], *hidden), hidden, (*runtime[:3], False)) == ""


@pytest.mark.parametrize(
    ("function", "public"),
    [
        ("__GI___strdup", "strdup"),
        ("_IO_new_fopen", "fopen"),
        ("__vasprintf_chk", "vasprintf"),
        ("__isoc99_fscanf", "fscanf"),
        ("std::locale::locale(char const*)", "std::locale::locale"),
        ("operator new(unsigned long)", ""),
        ("__libc_calloc", ""),
        ("std::f::_M_g()", ""),
        ("libc.so.6+0x12 (stripped)", ""),
    ],
)
def test_entries_have_public_names(function: str, public: str) -> None:
    assert entry((function, "main"), ("main",), (True, False)) == public


ADD = "stats::frequency::Frequencies<T>::add (streaming-stats-0.2.3/frequency.rs:29)"
RUN = "xsv::cmd::frequency::run (xsv-0.13.0/frequency.rs:141)"
START = "std::rt::lang_start (rt.rs:165)"


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ((ADD, RUN, "xsv::main (xsv-0.13.0/main.rs:70)", START), [True, False, False, False]),
        ((ADD, "tool::count (count.rs:3)", START), [True, False, False]),
        # A runtime of threads is the outermost, but the program's sources are elsewhere.
        ((ADD, "tool::count (count.rs:3)", "rayon::join (rayon-1.8.0/join.rs:9)"),
         [True, False, True]),
        (("main (main.c:3)",), [False]),
        ((), []),
    ],
)  # fmt: skip
def test_packages_that_a_rust_program_depends_on(
    names: tuple[str, ...], folded: list[bool]
) -> None:
    assert in_dependencies(names) == folded


def test_a_site_in_a_package_is_called_by_the_program() -> None:
    assert Folding().of((ADD, RUN), in_dependencies((ADD, RUN))) == (RUN,)
    assert entry((ADD, RUN), (RUN,), (True, False)) == "stats::frequency::Frequencies::add"


# --- text -----------------------------------------------------------------------------------------


def site(number: int, names: Sequence[str], full_names: Sequence[str] = ()) -> Site:
    return Site(number, 1, 10, (f"a+{number:#x}",), tuple(names), tuple(full_names or names))


def test_a_line_of_the_program_through_the_standard_library() -> None:
    files = ("/usr/lib/python3.11/json/decoder.py", "/usr/lib/python3.11/json/__init__.py")
    names = ("raw_decode (json/decoder.py:353)", "loads (json/__init__.py:346)")
    frames = [f"python: f ({file}:1)" for file in files]
    app = ("python: main (/srv/app.py:12)", "main (srv/app.py:12)")
    one = Site(1, 1, 1, (*frames, app[0]), (*names, app[1]), ())
    whole = "main (srv/app.py:12) through raw_decode (json/decoder.py:353)"
    assert callers([one], len(whole)) == [whole]
    assert callers([one], len(whole) - 1) == ["main (srv/app.py:12) through raw_decode"]
    assert callers([one], 30) == ["main (srv/app.py:12)"]
    near = Site(1, 1, 1, (frames[1], app[0]), (names[1], app[1]), ())
    assert callers([near], 60) == ["main (srv/app.py:12) through loads (json/__init__.py:346)"]
    package = "python: f (/usr/lib/python3.11/site-packages/orm/model.py:7)"
    own = Site(1, 1, 1, (package, app[0]), ("f (orm/model.py:7)", app[1]), ())
    assert callers([own], 40) == ["f (orm/model.py:7) < main"]
    alone = Site(1, 1, 1, tuple(frames), names, ())
    assert callers([alone], 60) == ["raw_decode (json/decoder.py:353) < loads"]


def test_equal_texts_say_in_what_the_sites_differ() -> None:
    """In a caller that had no room, in a line, or in what is folded."""
    first = ("make (a.c:3)", "deep" * 6, "one (b.c:1)")
    second = ("make (a.c:3)", "deep" * 6, "two (b.c:7)")
    assert callers([site(1, first), site(2, second)], 40) == [
        "make (a.c:3) < … < one (b.c:1)",
        "make (a.c:3) < … < two (b.c:7)",
    ]
    lines = (("make (a.c:3)", "main (b.c:1)"), ("make (a.c:3)", "main (b.c:7)"))
    assert callers([site(1, lines[0]), site(2, lines[1])], 60) == [
        "make (a.c:3) < … < main (b.c:1)",
        "make (a.c:3) < … < main (b.c:7)",
    ]
    same = [Site(i, 1, 10, (f"/opt/a+0x{i}",), ("make (a.c:3)",), ()) for i in (1, 2)]
    assert callers(same, 40) == ["make (a.c:3) at a+0x1", "make (a.c:3) at a+0x2"]
    hidden = [site(1, first, ("malloc", *first)), site(2, first, ("calloc", *first))]
    assert callers(hidden, 40) == [
        "make (a.c:3) through malloc",
        "make (a.c:3) through calloc",
    ]


def test_the_function_of_the_runtime_is_named_if_it_fits() -> None:
    one = Site(1, 1, 10, ("a+0x1",), ("show (a.c:3)", "main (a.c:9)"), (), "printf")
    assert callers([one], 40) == ["show (a.c:3) through printf < main"]
    assert callers([one], 27) == ["show (a.c:3) through printf"]
    assert callers([one], 26) == ["show (a.c:3) < main"]
    other = replace(one, id=2, through="puts")
    (both,) = Sites([one, replace(one, id=3), other]).merged()
    assert both.through == "" and both.allocs == 3
    (same,) = Sites([one, replace(one, id=3)]).merged()
    assert same.through == "printf"


def test_merged_sites_add_up() -> None:
    sites = Sites([site(1, ("f (a.c:1)",)), site(2, ("f (a.c:1)",)), site(3, ("g (a.c:2)",))])
    assert [(s.id, s.allocs, s.allocated_bytes) for s in sites.merged()] == [(1, 2, 20), (3, 1, 10)]
    assert len(sites) == 3 and "2 call sites" in repr(sites)
    bare = Sites([Site(1, 1, 10, ()), Site(2, 1, 10, ())])  # no frames: nothing says they are one
    assert len(bare.merged()) == 2


def test_sites_under_a_thousandth_of_the_bytes_share_a_line() -> None:
    """Of 10,000 bytes, 10 have a row, and twice 9 have not; ten rows at most."""
    sizes = (9_972, 10, 9, 9)
    text = repr(Sites(Site(i, 1, size, (), (f"f{i}",)) for i, size in enumerate(sizes)))
    assert "f1" in text and "f2" not in text
    assert text.splitlines()[-1] == "  ... 2 sites more, with 18 B allocated"
    equal = repr(Sites(Site(i, 1, 10, (), (f"f{i}",)) for i in range(12)))
    assert "f9" in equal and "f10" not in equal
    assert equal.splitlines()[-1] == "  ... 2 sites more, with 20 B allocated"


@pytest.mark.parametrize(
    ("most", "shown"),
    [
        (24, "std::copy_all (a.cc:445)"),
        (23, "std::copy_all…a.cc:445)"),
        (14, "std::….cc:445)"),
        (2, "…)"),
    ],
)
def test_names_are_cut_in_their_middle(most: int, shown: str) -> None:
    assert _format.shortened("std::copy_all (a.cc:445)", most) == shown
    assert len(shown) <= most
