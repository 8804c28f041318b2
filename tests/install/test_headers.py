# SPDX-License-Identifier: Apache-2.0
"""The public headers compile without a warning, in every standard of C and C++ since 2011.

Specialised paths are off wherever a sanitizer is at work, by whichever compiler.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from install_tools import ROOT, run

INCLUDE = ROOT / "include"
CONSUMER = ROOT / "tests/install/consumer"
HEADERS = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.glob("spanwise/*.h"))
CPLUSPLUS = sorted(
    path.relative_to(INCLUDE).as_posix() for path in INCLUDE.glob("spanwise/*.h*") if path.is_file()
)
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wundef", "-Werror"]
# C23 and C++23 are c2x and c++2b to the compilers of Debian 12.
STANDARDS = {
    "gcc": ("c11", "c17", "c2x", "gnu11"),
    "clang": ("c11", "c17", "c2x", "gnu11"),
    "g++": ("c++11", "c++14", "c++17", "c++20", "c++2b"),
    "clang++": ("c++11", "c++14", "c++17", "c++20", "c++2b"),
}
PAIRS = [(compiler, standard) for compiler, names in STANDARDS.items() for standard in names]


def compile_text(compiler: str, standard: str, text: str, folder: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    source = folder / ("user.cpp" if "++" in compiler else "user.c")
    source.write_text(text)
    # Not as system headers, in which compilers keep silent.
    run(compiler, f"-std={standard}", *WARNINGS, "-fsyntax-only", f"-I{INCLUDE}", source)


def included(names: list[str]) -> str:
    return "".join(f"#include <{name}>\n" for name in names)


@pytest.mark.parametrize(("compiler", "standard"), PAIRS)
def test_together_twice_and_used(compiler: str, standard: str, tmp_path: Path) -> None:
    """Includes a program that uses them: compilers look at templates only when they are used."""
    names = CPLUSPLUS if "++" in compiler else HEADERS
    program = CONSUMER / ("main.cpp" if "++" in compiler else "main.c")
    text = included([*names, *names]) + program.read_text(encoding="utf-8")
    compile_text(compiler, standard, text, tmp_path)


@pytest.mark.parametrize(("compiler", "standard"), [("gcc", "c11"), ("g++", "c++11")])
def test_each_alone_and_in_reverse(compiler: str, standard: str, tmp_path: Path) -> None:
    names = CPLUSPLUS if "++" in compiler else HEADERS
    compile_text(compiler, standard, included(names[::-1]), tmp_path)
    for name in names:
        compile_text(compiler, standard, included([name]), tmp_path)


# --- what users write -----------------------------------------------------------------------------


def compile_input(
    compiler: str, source: str, options: list[str]
) -> subprocess.CompletedProcess[str]:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    return subprocess.run(
        [compiler, *options, *WARNINGS, f"-I{INCLUDE}", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("compiler", "language"),
    [("gcc", "c"), ("clang", "c"), ("g++", "c++"), ("clang++", "c++")],
)
def test_class_specs_are_initialised_without_a_warning(compiler: str, language: str) -> None:
    """By the macro and by three values; by names as well in C (C++17 has none)."""
    named = "{.size_bytes = 48, .pages = 1, .first_pages = 1}" if language == "c" else "{48, 1, 0}"
    source = f"""
        #include <spanwise/sizeclass.h>
        const sw_class_spec specs[] = {{SW_CLASS_SPEC(16, 1), {{32, 4, 1}}, {named}}};
        int main(void) {{ return (int)specs[0].first_pages; }}
    """
    standard = "c11" if language == "c" else "c++17"
    options = ["-x", language, f"-std={standard}", "-fsyntax-only"]
    assert compile_input(compiler, source.rstrip(" "), options).stderr == ""


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_cache_is_found_without_asking_for_a_constructor(compiler: str) -> None:
    """No call of _ZTH or _ZTW, the Itanium ABI's names of what sets a variable of a thread up.

    C++ asks at each use of an extern `thread_local` whether there is one: 2 instructions a free.
    """
    source = """
        #include <spanwise/fast.h>
        void *get() { return sw_fast_malloc(16); }
        void drop(void *p) { sw_fast_free(p); }
    """
    done = compile_input(compiler, source, ["-x", "c++", "-O2", "-S", "-o", "-"])
    assert done.stderr == ""
    assert "sw_tls" in done.stdout
    assert "_ZTH" not in done.stdout and "_ZTW" not in done.stdout


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
@pytest.mark.parametrize(
    "call",
    [
        "sw_cache_alloc({cache}, 33, 0)",
        "sw_cache_free({cache}, p)",
        "sw_fast_cache_alloc({cache}, 33, 0)",
        "sw_fast_cache_free({cache}, p)",
    ],
)
def test_a_cache_that_is_null_is_warned_of(compiler: str, call: str) -> None:
    """These do not look at run time (docs/decisions/0017-interface.md)."""

    def compiled(cache: str) -> subprocess.CompletedProcess[str]:
        body = "(void)p; (void)cache; (void)" + call.format(cache=cache)
        source = f"void f(sw_cache *cache, void *p) {{ {body}; }}\n"
        language = "c++" if compiler.endswith("++") else "c"
        options = ["-x", language, "-fsyntax-only"]
        return compile_input(compiler, f"#include <spanwise/fast.h>\n{source}", options)

    warned = compiled("NULL")
    assert warned.returncode != 0
    assert "nonnull" in warned.stderr
    assert compiled("cache").stderr == ""


# --- specialised paths under sanitizers -----------------------------------------------------------

SANITIZERS = [
    ("gcc", "", 1),
    ("gcc", "address", 0),
    ("gcc", "thread", 0),
    ("gcc", "undefined", 1),
    ("clang", "", 1),
    ("clang", "address", 0),
    ("clang", "thread", 0),
    ("clang", "memory", 0),
]


@pytest.mark.parametrize(("compiler", "sanitizer", "expected"), SANITIZERS)
def test_specialised_paths_by_sanitizer(
    compiler: str, sanitizer: str, expected: int, tmp_path: Path
) -> None:
    """Only compiled. test_fast.c runs under the sanitizer of its build."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} was not found")
    source = f'#include "heap/heap.h"\n_Static_assert(SW_SPECIALISED == {expected}, "paths");\n'
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    # A stand-in for the header of MSan's runtime, included after the real one.
    (tmp_path / "sanitizer").mkdir()
    (tmp_path / "sanitizer/msan_interface.h").write_text("void __msan_unpoison(void *, size_t);\n")
    folders = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}", "-idirafter", str(tmp_path)]
    done = subprocess.run(
        [compiler, *flags, *folders, "-std=gnu11", "-fsyntax-only", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
