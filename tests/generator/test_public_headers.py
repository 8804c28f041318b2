# SPDX-License-Identifier: Apache-2.0
"""Each public header compiles alone, as C and as C++, without a warning of any compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "include"
C_HEADERS = sorted(str(path.relative_to(INCLUDE)) for path in INCLUDE.glob("spanwise/*.h"))
CXX_HEADERS = [*C_HEADERS, "spanwise/allocator.hpp", "spanwise/arena_allocator.hpp"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


def compile_source(
    compiler: str, source: str, options: list[str]
) -> subprocess.CompletedProcess[str]:
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"{compiler} is not installed")
    return subprocess.run(
        [path, *options, *WARNINGS, f"-I{INCLUDE}", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )


def compile_alone(compiler: str, language: str, standard: str, header: str) -> str:
    """What the compiler says about a source that only includes the header."""
    source = f"#include <{header}>\nint main(void) {{ return 0; }}\n"
    options = ["-x", language, f"-std={standard}", "-fsyntax-only"]
    return compile_source(compiler, source, options).stderr


@pytest.mark.parametrize("header", C_HEADERS)
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_as_c(compiler: str, header: str) -> None:
    assert compile_alone(compiler, "c", "c11", header) == ""


@pytest.mark.parametrize("header", CXX_HEADERS)
@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_as_cxx(compiler: str, header: str) -> None:
    assert compile_alone(compiler, "c++", "c++17", header) == ""


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
    assert compile_source(compiler, source.rstrip(" "), options).stderr == ""


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
    done = compile_source(compiler, source, ["-x", "c++", "-O2", "-S", "-o", "-"])
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
        return compile_source(compiler, f"#include <spanwise/fast.h>\n{source}", options)

    warned = compiled("NULL")
    assert warned.returncode != 0
    assert "nonnull" in warned.stderr
    assert compiled("cache").stderr == ""
