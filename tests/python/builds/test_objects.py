# SPDX-License-Identifier: Apache-2.0
"""The object cache: reuse only of unchanged objects, and no failure of a build."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from spanwise.builds import objects
from spanwise.builds.objects import ObjectCache, cache_folder
from spanwise.builds.steps import Compiler, compile_all

from tests.python.helpers import script

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no cc; install gcc")


class Tree:
    """Two sources, one with a generated header, and a compiler that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source, self.kept = folder, folder / "source", folder / "kept"
        self.source.mkdir()
        (self.source / "shared.h").write_text("#define SHARED 1\n")
        (self.source / "plain.c").write_text('#include "shared.h"\nint plain(void){return SHARED;}')
        text = '#include <gen/table.h>\n#include "shared.h"\nint seen(void) { return TABLE; }\n'
        (self.source / "table.c").write_text(text)
        self.counted = folder / "counted"
        self.counted.touch()
        body = f'case "$*" in *" -c "*) echo >>{self.counted};; esac\nexec cc "$@" -O0'
        self.cc = script(folder / "cc", body)

    def build(self, name: str, table: int, words: str = "", flags: tuple[str, ...] = ()) -> int:
        """Compile both sources in a folder of that name; return the number of compiler runs."""
        out = self.folder / name
        (out / "gen").mkdir(parents=True)
        (out / "gen/table.h").write_text(f"#define TABLE {table}\n")
        before = self.counted.stat().st_size
        compiler = Compiler.find(f"{self.cc} {words}")
        places = {"source": self.source, "build": out}
        cache = ObjectCache(self.kept, compiler.words, compiler.version, places)
        all_flags = [f"-I{out}", f"-ffile-prefix-map={out}=.", *flags]
        files = [self.source / "plain.c", self.source / "table.c"]
        generated = [out / "gen/table.h"]
        made = compile_all(
            compiler, files, all_flags, out / "objects", jobs=2, cache=cache, generated=generated
        )
        assert all(path.stat().st_size > 100 for path in made)
        ran = self.counted.stat().st_size - before
        assert (cache.compiled, cache.reused) == (ran, 2 - ran)
        return ran

    def objects(self, name: str) -> list[bytes]:
        """Return the objects of the build of that name."""
        return [path.read_bytes() for path in sorted((self.folder / name).glob("objects/*.o"))]

    def entries(self, kind: str) -> list[Path]:
        """Return the cached files with this suffix."""
        return sorted(self.kept.glob(f"*/*{kind}"))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_another_table_compiles_only_its_sources(tree: Tree) -> None:
    assert tree.build("a", 1) == 2
    assert tree.build("again", 1) == 0
    assert tree.build("b", 2) == 1
    assert tree.build("first-again", 1) == 0
    assert tree.objects("a") == tree.objects("again") == tree.objects("first-again")
    (plain, seen), (plain_b, seen_b) = tree.objects("a"), tree.objects("b")
    assert plain == plain_b and seen != seen_b


def test_any_change_of_an_input_compiles_again(tree: Tree) -> None:
    assert tree.build("a", 1) == 2
    header = tree.source / "shared.h"
    text = header.read_text()
    header.write_text("#define SHARED 2\n")
    assert tree.build("b", 1) == 2
    header.write_text(text)
    assert tree.build("c", 1) == 0
    (tree.source / "plain.c").write_text("int plain(void) { return 7; }\n")
    assert tree.build("d", 1) == 1
    assert tree.build("e", 1, flags=("-DNAME",)) == 2
    assert tree.build("f", 1, words="-DNAME") == 2
    assert tree.build("g", 1, words="-DNAME") == 0
    with Path(tree.cc).open("a") as file:
        file.write("# another compiler\n")
    assert tree.build("h", 1) == 2


def test_a_generated_header_that_is_new_may_hide_another(tree: Tree) -> None:
    """A make rule cannot list files that the compiler would have read, so the key has the names."""
    compiler = Compiler.find(tree.cc)
    places = {"source": tree.source, "build": tree.folder / "out"}
    cache = ObjectCache(tree.kept, compiler.words, compiler.version, places)
    headers = [tree.folder / "out/gen/table.h"]
    key = cache.key(tree.source / "plain.c", ["-O3"], headers)
    assert key == cache.key(tree.source / "plain.c", ["-O3"], headers)
    headers.append(tree.folder / "out/gen/shared.h")
    assert key != cache.key(tree.source / "plain.c", ["-O3"], headers)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"[1, 2]", b'[{"files": 3}]', b'[{"files": {"": 1}}]', b"\xff\0"]
)
def test_damaged_records_are_not_used(tree: Tree, damage: bytes) -> None:
    assert tree.build("a", 1) == 2
    for path in tree.entries(".json"):
        path.write_bytes(damage)
    assert tree.build("b", 1) == 2
    assert tree.build("c", 1) == 0
    assert tree.objects("a") == tree.objects("b") == tree.objects("c")


def test_damaged_objects_are_not_used(tree: Tree) -> None:
    assert tree.build("a", 1) == 2
    cut, flipped = tree.entries(".o")
    cut.write_bytes(cut.read_bytes()[:-1])
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"?")
    assert tree.build("b", 1) == 2
    for path in tree.entries(".o"):
        path.unlink()
    assert tree.build("c", 1) == 2
    assert tree.objects("a") == tree.objects("b") == tree.objects("c")


def test_beyond_the_limit_the_longest_unused_go(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    cache = ObjectCache(folder, [str(shutil.which("cc"))], "", {}, limit_bytes=10_000)
    for number in range(10):
        place = folder / f"{number:02}" / "x.o"
        place.parent.mkdir()
        place.write_bytes(bytes(1500))
        os.utime(place, (number, number))
    cache.shrink()
    assert sorted(path.parent.name for path in folder.glob("*/*")) == ["05", "06", "07", "08", "09"]
    cache.shrink()
    assert len(list(folder.glob("*/*"))) == 5


# --- where nothing is kept ------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["-march=native", "-include stdlib.h", "-g", "-fprofile-arcs"])
def test_options_that_a_key_cannot_represent(tree: Tree, words: str) -> None:
    assert tree.build("a", 1, words) == tree.build("b", 1, words) == 2
    assert not tree.kept.exists()


def test_a_folder_in_which_others_may_write_is_not_used(tree: Tree) -> None:
    tree.kept.mkdir()
    tree.kept.chmod(0o777)
    assert tree.build("a", 1) == tree.build("b", 1) == 2
    assert list(tree.kept.iterdir()) == []
    if os.geteuid() == 0:
        tree.kept.chmod(0o700)
        os.chown(tree.kept, 12345, 12345)
        assert tree.build("c", 1) == 2 and list(tree.kept.iterdir()) == []


def test_a_place_that_is_no_folder_is_no_error(tree: Tree) -> None:
    tree.kept.write_text("a file")
    assert tree.build("a", 1) == tree.build("b", 1) == 2
    assert tree.kept.read_text() == "a file"


def test_a_full_disk_is_no_error(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(place: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device", str(place), len(content))

    monkeypatch.setattr(objects, "write_whole", refuse)
    assert tree.build("a", 1) == tree.build("b", 1) == 2


def test_where_objects_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (objects.VARIABLE, "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/spanwise/objects")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/someone/.cache/spanwise/objects")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/mine")
    assert cache_folder() == Path("/var/cache/mine/spanwise/objects")
    monkeypatch.setenv(objects.VARIABLE, "/scratch")
    assert cache_folder() == Path("/scratch/objects")
    monkeypatch.setenv(objects.VARIABLE, "off")
    assert cache_folder() is None
