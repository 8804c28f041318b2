# SPDX-License-Identifier: Apache-2.0
"""Other projects find, link and run an installed library, with CMake and pkg-config."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from install_tools import ROOT, needs_pkg_config, quick_compiler, run

CONSUMER = ROOT / "tests/install/consumer"
MINOR = (ROOT / "tests/data/interface.txt").read_text(encoding="utf-8").splitlines()[0]

pytestmark = pytest.mark.slow


def needed_libraries(program: Path) -> str:
    return run("readelf", "-d", program)


@pytest.mark.parametrize("linkage", ["shared", "static"])
def test_cmake_package(linkage: str, prefix: Path, generator: list[str], tmp_path: Path) -> None:
    static = "ON" if linkage == "static" else "OFF"
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", f"-DSTATIC={static}"]
    run("cmake", "-S", CONSUMER, "-B", tmp_path, *generator, *options)
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "consumer").startswith("consumer ok ")
    uses_shared = "libspanwise.so" in needed_libraries(tmp_path / "consumer")
    assert uses_shared == (linkage == "shared")


def test_sources_in_another_project(unpacked: Path, generator: list[str], tmp_path: Path) -> None:
    """FetchContent, or add_subdirectory; the project installs itself, and not this library."""
    build, prefix = tmp_path / "build", tmp_path / "prefix"
    compiler = quick_compiler(tmp_path / "cc")
    for static in ("OFF", "ON"):
        options = [f"-DSOURCES={unpacked}", f"-DSTATIC={static}", f"-DCMAKE_C_COMPILER={compiler}"]
        run("cmake", "-S", CONSUMER, "-B", build, *generator, *options)
        run("cmake", "--build", build, "--target", "consumer", "-j2")
        assert run(build / "consumer").startswith("consumer ok ")
        uses_shared = "libspanwise.so" in needed_libraries(build / "consumer")
        assert uses_shared == (static == "OFF")
        run("cmake", "--install", build, "--prefix", prefix)
        assert not prefix.exists()


@needs_pkg_config
def test_told_rpath_starts_the_program(prefix: Path, libdir: Path, tmp_path: Path) -> None:
    """From the libdir of a triplet, too, where README's prefix has plain lib."""
    search = {"PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "spanwise", env=search).split()
    place = run("pkg-config", "--variable=libdir", "spanwise", env=search).strip()
    program = tmp_path / "consumer"
    run("cc", CONSUMER / "main.c", "-o", program, *flags, f"-Wl,-rpath,{place}")
    assert run(program).startswith("consumer ok ")


@needs_pkg_config
@pytest.mark.parametrize("linkage", ["shared", "static"])
def test_pkg_config(linkage: str, prefix: Path, libdir: Path, tmp_path: Path) -> None:
    static = ["--static"] if linkage == "static" else []
    search = {"PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    flags = run("pkg-config", *static, "--cflags", "--libs", "spanwise", env=search).split()
    assert f"-I{prefix}/include" in [str(Path(flag)) for flag in normal(flags)]
    if linkage == "static":
        flags = ["-l:libspanwise.a" if flag == "-lspanwise" else flag for flag in flags]
    program = tmp_path / "consumer"
    run("cc", "-std=c11", "-Wall", "-Werror", CONSUMER / "main.c", *flags, "-o", program)
    said = run(program, env={"LD_LIBRARY_PATH": str(libdir)} if linkage == "shared" else {})
    assert said.startswith("consumer ok ")


def normal(flags: list[str]) -> list[str]:
    """The flags with `a/b/..` folded, since a relocatable file names its prefix from its folder."""
    return [f"{flag[:2]}{Path(flag[2:]).resolve()}" if "/" in flag else flag for flag in flags]


def test_cplusplus_container(prefix: Path, libdir: Path, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    program = tmp_path / "consumer"
    flags = [f"-I{prefix}/include", f"-L{libdir}", "-lspanwise"]
    run("g++", "-std=c++11", "-Wall", "-Werror", CONSUMER / "main.cpp", *flags, "-o", program)
    assert run(program, env={"LD_LIBRARY_PATH": str(libdir)}) == "consumer ok\n"


def test_malloc_face_serves_a_program_that_knows_nothing_of_it(libdir: Path) -> None:
    preload = {"LD_PRELOAD": str(libdir / "libspanwise-malloc.so")}
    script = "print(sum(len(str(i)) for i in range(100000)))"
    said = run(sys.executable, "-c", script, env={**preload, "PYTHONMALLOC": "malloc"})
    assert said == "488890\n"


def test_a_library_of_another_interface_is_refused_at_load(
    prefix: Path, libdir: Path, tmp_path: Path
) -> None:
    """The SONAME has the minor version, so the loader refuses to start such a program."""
    program, other = tmp_path / "consumer", tmp_path / "other"
    flags = [f"-I{prefix}/include", f"-L{libdir}", "-lspanwise"]
    run("cc", CONSUMER / "main.c", *flags, "-o", program)
    (wanted,) = (path for path in libdir.glob("libspanwise.so.*.*") if path.name.count(".") == 3)
    assert run(program, env={"LD_LIBRARY_PATH": str(libdir)}).startswith("consumer ok ")
    other.mkdir()
    shutil.copy(wanted, other / "libspanwise.so.0.2")
    done = subprocess.run(
        [program],
        capture_output=True,
        text=True,
        check=False,
        env={"LD_LIBRARY_PATH": str(other), "LC_ALL": "C"},
    )
    assert (done.returncode, done.stdout) == (127, "")
    (line,) = done.stderr.splitlines()
    assert f"{wanted.name}: cannot open shared object file" in line


@needs_pkg_config
def test_version_of_package_and_header_agree(libdir: Path) -> None:
    header = (ROOT / "include/spanwise/spanwise.h").read_text()
    search = {"PKG_CONFIG_PATH": str(libdir / "pkgconfig")}
    version = run("pkg-config", "--modversion", "spanwise", env=search).strip()
    assert f'SPANWISE_VERSION "{version}"' in header


@pytest.mark.parametrize(("wanted", "fits"), [(MINOR, True), ("0.2", False), ("1.0", False)])
def test_a_version_that_does_not_fit_is_refused(
    wanted: str, fits: bool, prefix: Path, generator: list[str], tmp_path: Path
) -> None:
    """Before 1.0 another minor version is another interface."""
    lines = ["cmake_minimum_required(VERSION 3.21)", "project(asks LANGUAGES C)"]
    lines += [f"find_package(spanwise {wanted} REQUIRED)"]
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    place = ("-S", tmp_path, "-B", tmp_path / "build")
    options = (*generator, f"-DCMAKE_PREFIX_PATH={prefix}")
    if fits:
        run("cmake", *place, *options)
        return
    with pytest.raises(AssertionError, match=re.escape(f"{MINOR}.0")):
        run("cmake", *place, *options)


def test_staged_installation(prefix: Path, build_folder: Path, tmp_path: Path) -> None:
    """DESTDIR, as packages are made: the same files, below it, and nothing in the prefix."""
    run("cmake", "--install", build_folder, env={"DESTDIR": str(tmp_path)})
    first = build_folder.with_name("first")
    staged = tmp_path / first.relative_to("/")
    assert not first.exists()
    content = {
        name: {
            path.relative_to(place): path.read_bytes()
            for path in place.rglob("*")
            if path.is_file()
        }
        for name, place in (("staged", staged), ("plain", prefix))
    }
    assert content["staged"] == content["plain"]


def test_installed_replayer_runs(prefix: Path) -> None:
    words = [str(prefix / "bin/spanwise-replay")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "usage: spanwise-replay OPS" in done.stderr


def test_wrong_option_is_named(generator: list[str], tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="SPANWISE_CHECK is '7': use 0, 1, 2 or 3"):
        run("cmake", "-S", ROOT, "-B", tmp_path, *generator, "-DSPANWISE_CHECK=7")


def test_recorder_exports_the_malloc_family_only(libdir: Path) -> None:
    symbols = run("nm", "-D", "--defined-only", libdir / "libspanwise-record.so")
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    assert {"malloc", "free", "calloc", "realloc"} <= names
    needed = run("readelf", "-d", libdir / "libspanwise-record.so")
    assert "libzstd" not in needed
    assert "zstd" not in run("nm", libdir / "libspanwise-record.so").lower()


def test_zstd_is_used_through_its_stable_interface() -> None:
    """A shared libzstd has no other, so distributors refuse what asks for more."""
    for path in (ROOT / "src").rglob("*.[ch]"):
        text = path.read_text(encoding="utf-8")
        assert "_STATIC_LINKING_ONLY" not in text and "zstd_errors.h" not in text, path
