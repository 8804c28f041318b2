# SPDX-License-Identifier: Apache-2.0
"""The command line: outputs, exit status, one-line errors, and checks before the work begins."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import workloads
from spanwise.__main__ import main
from spanwise.commands import _options, demo
from spanwise.ledger.parts import PARTS

from tests.python.helpers import GO_TABLE, needs_recorder, random_ops, spanwise

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands run in tmp_path, with a.swt of many seconds and b.swt of 0.2 ms."""
    monkeypatch.chdir(tmp_path)
    sw.Recording.from_ops(random_ops(1, 3000), "a.swt")
    sw.Recording.from_ops(workloads.steady_replacement(10, 100).ops, "b.swt")
    yield


def error_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the only line of a failing command, which printed nothing else and created no file."""
    before = sorted(Path().iterdir())
    try:
        status = main(words)
    except SystemExit as end:
        status = int(end.code or 0)
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, ""), captured.err
    assert sorted(Path().iterdir()) == before
    assert captured.err.count("\n") == 1
    return captured.err.rstrip("\n").removeprefix("spanwise: ")


# --- outputs are looked at before the work --------------------------------------------------------


@pytest.fixture
def no_work(here: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a recording, running a program or compiling fails the test."""

    def worked(*_: object, **__: object) -> None:
        pytest.fail("the work was begun")

    monkeypatch.setattr(sw.Recording, "open", worked)
    monkeypatch.setattr(sw.RecordingSet, "open", worked)
    for module in ("searches.sweep", "record.run_recorded", "run.run_under"):
        monkeypatch.setattr(f"spanwise.commands.{module}", worked)


PLOTS = (("ledger", "a.swt"), ("compare", "a.swt"), ("replay", "a.swt"))
FILES = (("optimize", "a.swt"), ("sweep", "a.swt"))
PROGRAMS = (("record",), ("run",))


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("words", [*PLOTS, *FILES], ids=str)
def test_a_picture_that_cannot_be_written(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for name, why in (
        ("no/a.png", "cannot be written: No such file or directory"),
        ("a.swt/a.png", "cannot be written: Not a directory"),
        (".", "cannot be written: Is a directory"),
        ("a.swt", "is a recording, which would be lost; give another name"),
    ):
        assert error_line(capsys, *words, "--plot", name) == f"{name}: {why}"
    for name in ("a.doc", "picture"):
        message = error_line(capsys, *words, "--plot", name)
        assert message.startswith(f"{name}: unsupported picture format; use one of ")


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("words", [*FILES, *PROGRAMS], ids=str)
def test_a_file_that_cannot_be_written(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    command, *files = words
    program = [] if files else ["--", "/bin/ls"]
    for name, why in (
        ("no/a.out", "cannot be written: No such file or directory"),
        ("a.swt/a.out", "cannot be written: Not a directory"),
        (".", "cannot be written: Is a directory"),
    ):
        assert error_line(capsys, command, *files, "-o", name, *program) == f"{name}: {why}"
    assert error_line(capsys, command, *files, "-o", "-", *program) == (
        "-: standard output is not written to; give the name of a file"
    )
    if command != "record":
        assert error_line(capsys, command, *files, "-o", "a.swt", *program) == (
            "a.swt: is a recording, which would be lost; give another name"
        )


def test_a_table_replaces_tables_only(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.json").write_text("precious")
    assert error_line(capsys, "optimize", "a.swt", "-o", "mine.json") == (
        "mine.json: exists already and is not JSON; give another name"
    )
    assert Path("mine.json").read_text() == "precious"
    assert error_line(capsys, "optimize", "a.swt", "-o", "mine.txt") == (
        "mine.txt: a table file ends in .json; give another name"
    )


def test_force_replaces_all_but_recordings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.json").write_text("no table")
    assert main(["optimize", "b.swt", "--candidates=2", "--anyway", "-fo", "mine.json"]) in (0, 1)
    assert "classes" in Path("mine.json").read_text()
    capsys.readouterr()
    for words in (["optimize", "b.swt"], ["run"], ["export", "b.swt", "--to", "npz"]):
        tail = ["--", "/bin/true"] if words == ["run"] else []
        assert error_line(capsys, *words, "-f", "-o", "a.swt", *tail) == (
            "a.swt: is a recording, which would be lost; give another name"
        )


def test_force_begins_a_sweep_anew(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", "b.swt", "--table", "go", "-o", "s.jsonl"]
    assert main(words) == 0
    Path("s.jsonl").write_text("something else\n")
    assert main(words) == 2
    capsys.readouterr()
    assert main([*words, "-f"]) == 0
    assert len(Path("s.jsonl").read_text().splitlines()) == 2  # a head and a row


def test_saving_names_the_picture_and_not_its_hidden_file() -> None:
    ledger = sw.Recording.open("a.swt").ledger()
    for name in ("a.swt/a.png", "no/a.png"):
        with pytest.raises(OSError) as caught:
            sw.plots.save(ledger.plot(), name)
        assert caught.value.filename == name
    with pytest.raises(OSError) as caught:
        sw.SizeClassTable.go().to_json("a.swt/go.json")
    assert caught.value.filename == "a.swt/go.json"
    with pytest.raises(sw.InvalidError, match="picture: unsupported picture format"):
        sw.plots.save(ledger.plot(), "picture")


# --- record does not overwrite --------------------------------------------------------------------


def test_record_refuses_a_file_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("a.swt").read_bytes()
    for words in (["-o", "a.swt"], ["-o", "notes.txt"], []):
        Path("notes.txt").write_text("mine")
        Path("ls.swt").write_text("mine")
        name = words[-1] if words else "ls.swt"
        assert error_line(capsys, "record", *words, "--", "/bin/ls") == (
            f"{name}: exists already; give another name with -o, or --force"
        )
    assert Path("a.swt").read_bytes() == before
    assert Path("notes.txt").read_text() == "mine"


def test_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong, what was meant, and where to read on."""
    sizes = "is not a number of bytes: 4096, 4K and 4KiB are the same, 4KB is 4000"
    executors = "give threads, dask or dask:tcp://HOST:PORT"
    for words, message in (
        ("", "the following arguments are required: COMMAND; see spanwise --help"),
        (
            "ledger a.swt --tabel go",
            "spanwise ledger: unknown option --tabel; did you mean --table?;"
            " see spanwise ledger --help",
        ),
        (
            "record --stcks=3 -- ls",
            "spanwise record: unknown option --stcks; did you mean --stacks?;"
            " see spanwise record --help",
        ),
        (
            "explain 33 --qqqq",
            "spanwise explain: unknown option --qqqq; see spanwise explain --help",
        ),
        ("explain 33 44", "spanwise explain: unexpected '44'; see spanwise explain --help"),
        ("record -o x.swt", "no program to record; give it after --"),
        ("run --limit many -- ls", f"--limit 'many' {sizes}"),
        ("run --limit=-1K -- ls", "--limit -1K is negative; give 0 (no limit) or more"),
        (
            "optimize a.swt --largest x",
            f"spanwise optimize: argument --largest: size 'x' {sizes};"
            " see spanwise optimize --help",
        ),
        (
            "build --table go -o out --cutoff x",
            f"spanwise build: argument --cutoff: size 'x' {sizes}; see spanwise build --help",
        ),
        ("sweep a.swt --executor foo", f"--executor foo: {executors}"),
        (
            "sweep a.swt --executor threads:4",
            f"--executor threads:4: {executors}; did you mean threads?",
        ),
        (
            "optimize a.swt --holdout ./a.swt",
            "a.swt: cannot be held out, because the table is fitted to it",
        ),
    ):
        found = error_line(capsys, *words.split())
        assert found.removeprefix("spanwise ") == message.removeprefix("spanwise "), words
    message = error_line(capsys, "ledgr", "a.swt")
    assert message.startswith("argument COMMAND: invalid choice: 'ledgr'")
    assert message.endswith("; did you mean ledger?; see spanwise --help")
    message = error_line(capsys, "ledger", "a.swt", "--placement", "adress")
    assert message.endswith("; did you mean address?; see spanwise ledger --help")


# --- moments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ledger", "compare"])
def test_a_moment_after_the_end(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    last = sw.Recording.open("b.swt").summary.duration_ns
    assert last == 209_000
    assert error_line(capsys, command, "b.swt", "--at", "9999s") == (
        "b.swt: moment '9999s' is after its end; it lasts 209.000 us"
    )
    assert main([command, "b.swt", "--at", f"{last / 1e9}s"]) == 0
    assert main([command, "b.swt", "--at", "0s"]) == 0
    capsys.readouterr()


def test_a_sweep_at_a_moment_after_the_end() -> None:
    found = sw.sweep(["a.swt", "b.swt"], ["go"], at="1s")
    assert len(found) == 2
    assert [str(row["error"]) for row in found.failures] == [
        "b.swt: moment '1s' is after its end; it lasts 209.000 us"
    ]


# --- sizes ----------------------------------------------------------------------------------------


def test_sizes() -> None:
    for words, sizes in (
        ("33 0 -5 1_000 12B", (33, 0, -5, 1000, 12)),
        ("33K 33KiB 33kib 33KB 2M 2MiB 2MB", (33792,) * 3 + (33000, 1 << 21, 1 << 21, 2000000)),
        ("1G 1GB 3T 3TiB 3tb", (1 << 30, 10**9, 3 << 40, 3 << 40, 3 * 10**12)),
    ):
        assert tuple(map(_options.parse_size, words.split())) == sizes
    assert (_options.parse_size("12 b"), _options.parse_size("33 kB")) == (12, 33000)


@pytest.mark.parametrize(
    "word", ["", "K", "x", "1.5K", "1e3", "4Ki", "4iB", "4 K B", "0x10", "1__0", "_", "4KBB", "٣"]
)
def test_words_that_are_no_sizes(word: str) -> None:
    with pytest.raises(sw.InvalidError) as caught:
        _options.parse_size(word, "--limit")
    assert str(caught.value) == (
        f"--limit {word!r} is not a number of bytes: 4096, 4K and 4KiB are the same, 4KB is 4000"
    )


# --- words that are misspelt ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["false", "true", "echo"])
def test_a_program_that_is_no_compiler(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "build", "--table", "c16", "-o", "out", "--cc", name) == (
        f"{name}: is not a C compiler; install gcc or clang, or name one with --cc"
    )


# --- files that are cut ---------------------------------------------------------------------------


def test_a_cut_file_offers_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    whole = Path("b.swt").read_bytes()
    Path("cut.swt").write_bytes(whole[:64])
    assert error_line(capsys, "ledger", "cut.swt") == (
        "cut.swt: byte 64: the recording has no end (the file is cut);"
        " nothing before it can be used, record again"
    )
    sw.Recording.from_ops(random_ops(1, 1), "one.swt")
    summary_bytes = 48 + 26 * 8  # a block header and as many fields
    Path("cut.swt").write_bytes(Path("one.swt").read_bytes()[:-40])
    message = error_line(capsys, "ledger", "cut.swt")
    assert message.endswith(
        "; use --valid-prefix (in Python valid_prefix=True) to read the 1 operation before it"
    )
    assert summary_bytes > 40


# --- the demo's folder ----------------------------------------------------------------------------


def test_a_demo_that_fails_at_once_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_record_python", stopped)
    assert main(["demo", "-o", "new/out"]) == 130
    assert not Path("new").exists()
    Path("old").mkdir()
    assert main(["demo", "-o", "old"]) == 130
    assert Path("old").is_dir()

    def stopped_later(folder: Path) -> None:
        (folder / "python.swt").write_text("something")
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_record_python", stopped_later)
    assert main(["demo", "-o", "new/out"]) == 130
    assert Path("new/out/python.swt").exists()
    capsys.readouterr()


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return the output of a command that succeeds."""
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"spanwise {sw.__version__}\n"


def test_ledger_and_compare(capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(said(capsys, "ledger", "a.swt", "--table", "go", "--json"))
    assert sum(value[part] for part in PARTS) == value["held_bytes"]
    recording = sw.Recording.open("a.swt")
    ledger, after = recording.ledger("go"), recording.after_peak("go")
    assert value == {**json.loads(ledger.to_json()), "after_peak": json.loads(after.to_json())}
    text = said(capsys, "ledger", "a.swt", "--table", "go", "--plot", "a.png")
    assert text.startswith(f"simulated {ledger}") and "classes with the most waste, bytes" in text
    assert "held over requested, mean over the run" in text
    for at in ("peak", "end", "0.5s", "200ms", "1"):
        value = json.loads(said(capsys, "ledger", "a.swt", "--at", at, "--json"))
        assert 0 < value["events"] <= 3000
    tables = ("--table", "go", "--table", "c16", "--table", "pow2")
    value = json.loads(said(capsys, "compare", "a.swt", *tables, "--json"))
    assert [ledger["table"] for ledger in value["ledgers"]] == ["go", "c16", "pow2"]
    text = said(capsys, "compare", "a.swt", "--plot", "b.png")
    assert text.splitlines()[1].split() == ["go", "c16"]
    assert ", the least: " in text.splitlines()[-1]
    for picture in (Path("a.png"), Path("b.png")):
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_tables_and_recordings_that_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["classes"], ["explain", "8"], ["ledger", "a.swt"]):
        assert error_line(capsys, *words, "--table", "gone") == (
            "unknown table 'gone'; use go, c16, jemalloc, tcmalloc, mimalloc, pow2, fibonacci,"
            " geometric-R or FILE.json (R: a ratio such as 1.25)"
        )
    for words, message in (
        (["explain", "-5"], "size -5 is negative; give 0 or more"),
        (["ledger", "no.swt"], "no.swt: cannot open the recording: No such file or directory"),
        (["ledger", "*.none"], "*.none: no file matches"),
        (
            ["ledger", "a.swt", "--at", "noon"],
            "moment 'noon': give peak, peak-resident, end, an operation such as #1000, or a time"
            " such as 1.5s",
        ),
    ):
        assert error_line(capsys, *words) == message


# --- classes --------------------------------------------------------------------------------------


def test_classes_json_has_the_keys_and_numbers_of_go(capsys: pytest.CaptureFixture[str]) -> None:
    ours = json.loads(said(capsys, "classes", "--table", "go", "--json"))
    theirs = json.loads(GO_TABLE.read_text())
    assert list(ours) == list(theirs)
    for key in set(ours) - {"source"}:
        assert ours[key] == theirs[key], key


def test_formats_of_classes(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(said(capsys, "classes", "--table", "go").splitlines()) == 69
    assert said(capsys, "classes") == said(capsys, "classes", "--table", "c16")
    assert said(capsys, "classes", "--format", "md").startswith("| class | bytes/obj |")
    as_c = said(capsys, "classes", "--format", "c")
    assert "static const sw_class_spec classes_c16[66] = {\n    {8, 1, 0},\n    {16, 2, 1}," in as_c
    sw.SizeClassTable.custom([8, 48], name="mine").to_json("t.json")
    assert "    2         48" in said(capsys, "classes", "--table", "t.json")


# --- explain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "rounded"), [(33, 48), (32769, 40960), (0, 0)])
def test_explain(capsys: pytest.CaptureFixture[str], size: int, rounded: int) -> None:
    assert said(capsys, "explain", "33KiB") == said(capsys, "explain", "33792")
    value = json.loads(said(capsys, "explain", str(size), "--table", "go", "--json"))
    assert (value["size_bytes"], value["rounded_bytes"]) == (size, rounded)
    assert value["waste_bytes"] == rounded - size
    text = said(capsys, "explain", str(size), "--table", "go")
    assert f"rounded up to     {rounded} B\n" in text
    assert ("but malloc(0) takes a slot of 8 B" in text) == (size == 0)


# --- record ---------------------------------------------------------------------------------------


@needs_recorder()
def test_record(tmp_path: Path) -> None:
    done = spanwise("record", "-o", tmp_path / "ls.swt", "--", "/bin/ls", "/bin/ls", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "/bin/ls\n")
    events = len(sw.Recording.open(tmp_path / "ls.swt"))
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"{tmp_path}/ls.swt: {events:,} events (")
    (tmp_path / "ls.swt").unlink()
    done = spanwise("record", "/bin/ls", "-d", "/bin/ls", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "ls.swt").exists()


# --- interruptions --------------------------------------------------------------------------------


def test_a_closed_pipe_is_no_error() -> None:
    script = f"{sys.executable} -m spanwise classes | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
