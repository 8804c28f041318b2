# SPDX-License-Identifier: Apache-2.0
"""The recorder, loaded into a program that runs already (`spanwise record --pid`)."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from numpy.typing import NDArray
from spanwise._lib import lib
from spanwise.errors import ProgramError, UnsupportedError
from spanwise.recordings import attached, programs
from spanwise.recordings.attached import AttachOptions, record_running

from tests.recorder.tools import CC, Recorder

ROUNDS = 100 if os.environ.get("SPANWISE_FULL_TESTS") else 5
THREADS = 4
BURST, BURST_BYTES = 10_000, 1237
HOLD, HOLD_BYTES = 100, 3331
LOADED, LOADED_BYTES = 1000, 2221
HOOKED = ["malloc", "calloc", "realloc", "free", "posix_memalign", "aligned_alloc"]
HOOKED += ["exit", "_exit", "execve"]


def _may_attach() -> bool:
    """Whether gdb is there and the kernel lets it attach to a process of ours."""
    if shutil.which("gdb") is None:
        return False
    with subprocess.Popen(["sleep", "60"]) as child:
        words = ["gdb", "-nx", "-q", "-batch", "-p", str(child.pid), "-ex", "detach"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        child.kill()
    return "detached" in done.stdout


needs_gdb = pytest.mark.skipif(not _may_attach(), reason="gdb is missing, or may not attach")


class Running:
    """A process whose memory is read."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def entries(self) -> dict[str, int]:
        """What the entries for hooked functions hold, by module and function."""
        found = {}
        for start, path in self._modules():
            text = subprocess.run(
                ["readelf", "-rW", path], capture_output=True, text=True, check=False
            ).stdout
            kind = subprocess.run(
                ["readelf", "-hW", path], capture_output=True, text=True, check=False
            ).stdout
            base = 0 if "EXEC" in kind else start
            pattern = r"^([0-9a-f]+) .*(JUMP_SL\w*|GLOB_DAT\w*|R_\w+_64|ABS64)\s+\S+\s+(\w+)"
            for offset, _, name in re.findall(pattern, text, re.MULTILINE):
                if name in HOOKED:
                    at = base + int(offset, 16)
                    found[f"{Path(path).name}:{name}:{offset}"] = self._word(at)
        return found

    def protections(self) -> list[str]:
        """The mappings of files, with their protection; not those of the recorder."""
        lines = Path(f"/proc/{self.pid}/maps").read_text("utf-8").splitlines()
        return [line for line in lines if ".so" in line and "spanwise" not in line]

    def recorder_range(self) -> tuple[int, int]:
        """The addresses of the recorder in it."""
        lines = Path(f"/proc/{self.pid}/maps").read_text("utf-8").splitlines()
        ranges = [line.split()[0] for line in lines if "libspanwise-record" in line]
        ends = [int(end, 16) for one in ranges for end in one.split("-")]
        return min(ends), max(ends)

    def functions(self) -> dict[str, int]:
        """The addresses of the hooked functions in its C library."""
        start, path = next(one for one in self._modules() if "libc.so" in one[1])
        words = ["nm", "-D", "--defined-only", path]
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found = re.findall(r"^([0-9a-f]+) [TW] (\w+)@@", text, re.MULTILINE)
        return {name: start + int(offset, 16) for offset, name in found if name in HOOKED}

    def _modules(self) -> list[tuple[int, str]]:
        seen: dict[str, int] = {}
        for line in Path(f"/proc/{self.pid}/maps").read_text("utf-8").splitlines():
            words = line.split()
            if len(words) > 5 and words[5].startswith("/") and "spanwise-record" not in words[5]:
                seen.setdefault(words[5], int(words[0].split("-")[0], 16))
        return [(start, path) for path, start in seen.items()]

    def _word(self, at: int) -> int:
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
            memory.seek(at)
            return int.from_bytes(memory.read(8), "little")


class Server(Running):
    """A server of server.c that runs."""

    def __init__(self, words: Sequence[str | Path], env: dict[str, str] | None = None) -> None:
        self.child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        super().__init__(self.child.pid)
        assert self.ask("ping") == "pong"

    def ask(self, line: str) -> str:
        """Sends a request; returns the answer."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, str]:
        """Ends it; returns its status and what it wrote to standard error."""
        return_code = self.child.poll()
        if return_code is None:
            self.child.terminate()
        _, said = self.child.communicate(timeout=60)
        return self.child.returncode, said


@pytest.fixture
def server(recorder: Recorder) -> Iterator[Server]:
    one = Server([recorder.program("server"), str(THREADS)])
    yield one
    one.end()


class Attached:
    """A command that records a process; `result` after the block."""

    def __init__(self, pid: int, output: Path, *words: str) -> None:
        command = [sys.executable, "-m", "spanwise", "record", "--pid", str(pid), "-o", str(output)]
        self.output = output
        self.child = subprocess.Popen(
            [*command, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.status = -1
        self.said = ""

    def wait(self) -> None:
        """Waits for its end."""
        _, said = self.child.communicate(timeout=120)
        self.said = " ".join(said.split())  # lines are wrapped
        self.status = self.child.returncode

    def wait_until_it_records(self) -> None:
        """Waits until the file has events of the threads that work all the time."""
        pattern = f".spanwise-*/{self.output.name}"
        deadline = time.monotonic() + 60
        while not any(path.stat().st_size > 1 << 15 for path in self.output.parent.glob(pattern)):
            assert self.child.poll() is None, self.child.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)


@contextmanager
def recording(pid: int, output: Path, *words: str) -> Iterator[Attached]:
    """Records while the block runs, until Ctrl-C."""
    one = Attached(pid, output, *words)
    try:
        one.wait_until_it_records()
        yield one
    finally:
        one.child.send_signal(signal.SIGINT)
        one.wait()


def sizes(path: Path, kind: int) -> NDArray[np.uint64]:
    ops = np.asarray(sw.Recording.open(path).ops)
    found: NDArray[np.uint64] = ops["size"][ops["kind"] == kind]
    return found


def assert_left(server: Running, before: dict[str, int], protections: list[str]) -> None:
    """The program calls what it has called before, and its pages are protected as before.

    An entry that no call had used yet may have got the address of its function.
    """
    after, real = server.entries(), server.functions()
    changed = [name for name in before if after[name] != before[name]]
    assert [name for name in changed if after[name] != real[name.split(":")[1]]] == []
    low, high = server.recorder_range()
    assert [name for name, value in after.items() if low <= value < high] == []
    assert server.protections() == protections


# --- windows --------------------------------------------------------------------------------------


@needs_gdb
def test_again_and_again(server: Server, tmp_path: Path) -> None:
    """Each file has all calls of a thread that starts after the recorder, which leaves no trace."""
    assert server.ask("hold") == "hold"  # sets the entries that are set at the first call
    assert server.ask("drop") == "drop"
    assert server.ask("burst 2") == "burst 2"
    before, protections = server.entries(), server.protections()
    assert before
    for k in range(ROUNDS):
        path = tmp_path / f"{k}.swt"
        with recording(server.pid, path) as one:
            assert server.ask(f"burst {BURST + k}") == f"burst {BURST + k}"
            assert server.ask("hold") == "hold"
        assert one.status == 0, one.said
        found = sw.Recording.open(path)
        assert found.summary.gaps() == []
        assert found.summary.missed_frees == 0
        assert (sizes(path, lib.SW_OP_ALLOC) == BURST_BYTES).sum() == BURST + k
        halves = (sizes(path, lib.SW_OP_REALLOC) == 2 * BURST_BYTES).sum()
        assert halves == (BURST + k + 1) // 2
        assert (sizes(path, lib.SW_OP_ALLOC) == HOLD_BYTES).sum() == HOLD
        assert found.summary.threads >= THREADS + 1
        assert_left(server, before, protections)
        assert server.ask("drop") == "drop"
        path.unlink()
    assert server.ask("ping") == "pong"
    status, said = server.end()
    assert (status, said) == (-signal.SIGTERM, "")


@needs_gdb
def test_objects_from_before_are_counted(server: Server, tmp_path: Path) -> None:
    assert server.ask("hold") == "hold"
    with recording(server.pid, tmp_path / "a.swt") as one:
        assert server.ask("drop") == "drop"
    assert one.status == 0, one.said
    found = re.search(r"([\d,]+) frees.* of objects from before", one.said)
    assert found is not None, one.said
    assert int(found[1].replace(",", "")) >= HOLD
    assert "not included" in str(sw.Recording.open(tmp_path / "a.swt").remark)


@needs_gdb
def test_a_window_has_a_length(server: Server, tmp_path: Path) -> None:
    result = record_running(server.pid, tmp_path / "a.swt", AttachOptions(seconds=0.5))
    assert result.findings() == []
    assert 0 < sw.Recording.open(result.path).summary.duration_ns < 60e9
    assert server.ask("ping") == "pong"


@needs_gdb
def test_a_sample(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "a.swt"
    with recording(server.pid, path, "--sample", "64K") as one:
        assert server.ask("hold") == "hold"
    assert one.status == 0, one.said
    found = sw.SampledRecording.open(path)
    assert found.sample_bytes == 64 << 10
    assert "objects from before the recording are not included" in str(found.estimate())
    with recording(server.pid, tmp_path / "b.swt"):  # a full one afterwards
        assert server.ask("burst 100") == "burst 100"
    assert (sizes(tmp_path / "b.swt", lib.SW_OP_ALLOC) == BURST_BYTES).sum() == 100


@needs_gdb
def test_the_program_ends(server: Server, tmp_path: Path) -> None:
    one = Attached(server.pid, tmp_path / "a.swt")
    one.wait_until_it_records()
    server.ask("exit")
    one.wait()
    assert one.status == 0, one.said
    found = sw.Recording.open(tmp_path / "a.swt")
    assert found.summary.gaps() == []
    assert (sizes(tmp_path / "a.swt", lib.SW_OP_ALLOC) == HOLD_BYTES).sum() == 1
    assert server.end() == (7, "")


@needs_gdb
def test_the_program_is_killed(server: Server, tmp_path: Path) -> None:
    one = Attached(server.pid, tmp_path / "a.swt")
    one.wait_until_it_records()
    assert server.ask("hold") == "hold"
    server.child.kill()
    server.child.wait()
    one.wait()
    assert (sizes(tmp_path / "a.swt", lib.SW_OP_ALLOC) == HOLD_BYTES).sum() == HOLD


@needs_gdb
def test_the_command_is_killed(server: Server, tmp_path: Path) -> None:
    """The program leaves the recording by itself."""
    server.ask("burst 2")
    before, protections = server.entries(), server.protections()
    one = Attached(server.pid, tmp_path / "a.swt")
    one.wait_until_it_records()
    one.child.kill()
    one.wait()
    low, high = server.recorder_range()
    deadline = time.monotonic() + 30
    while any(low <= value < high for value in server.entries().values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert_left(server, before, protections)
    for path in Path("/dev/shm").glob("spanwise-*"):  # its own, which it could not remove
        if (path / "script").exists() and str(server.pid) in (path / "script").read_text("utf-8"):
            shutil.rmtree(path)


@needs_gdb
def test_a_library_that_is_loaded_meanwhile(
    server: Server, recorder: Recorder, tmp_path: Path
) -> None:
    library = recorder.program("server", "-DLIBRARY", "-shared")
    with recording(server.pid, tmp_path / "a.swt") as one:
        assert server.ask(f"load {library}") == f"load {library}"
    assert one.status == 0, one.said
    assert (sizes(tmp_path / "a.swt", lib.SW_OP_ALLOC) == LOADED_BYTES).sum() == LOADED


@needs_gdb
def test_a_child(server: Server, tmp_path: Path) -> None:
    """It is not recorded, and calls the real functions."""
    server.ask("burst 2")
    before, protections = server.entries(), server.protections()
    with recording(server.pid, tmp_path / "a.swt") as one:
        assert server.ask("fork") == "fork 0"
        child = Running(int(server.ask("child").split()[1]))
        assert_left(child, before, protections)
    assert one.status == 0, one.said
    assert "2 children not recorded" in one.said
    assert (sizes(tmp_path / "a.swt", lib.SW_OP_ALLOC) == BURST_BYTES).sum() == 0


@needs_gdb
def test_another_malloc(recorder: Recorder, tmp_path: Path) -> None:
    """The allocator that was preloaded serves the calls, before, in and after the window."""
    library = recorder.library.with_name("libspanwise-malloc.so")
    server = Server([recorder.program("server"), "2"], {"LD_PRELOAD": str(library)})
    path = tmp_path / "a.swt"
    with recording(server.pid, path) as one:
        assert server.ask(f"burst {BURST}") == f"burst {BURST}"
    assert one.status == 0, one.said
    found = sw.Recording.open(path)
    assert found.allocator == "spanwise"
    assert (sizes(path, lib.SW_OP_ALLOC) == BURST_BYTES).sum() == BURST
    assert server.ask("burst 100") == "burst 100"
    assert server.end() == (-signal.SIGTERM, "")


@needs_gdb
def test_a_program_that_never_waits(recorder: Recorder, tmp_path: Path) -> None:
    """It is stopped at its next call of malloc or free."""
    program = recorder.program("server", "-DBUSY=1")
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with recording(child.pid, tmp_path / "a.swt", "--sample", "4K") as one:
            time.sleep(0.1)
        assert one.status == 0, one.said
        assert child.poll() is None
        child.kill()
    assert sw.SampledRecording.open(tmp_path / "a.swt").gaps == []


@needs_gdb
def test_a_program_that_only_computes(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left as it was, and the message says what it would need."""
    monkeypatch.setattr(attached, "_GDB_SECONDS", 3)
    program = recorder.program("server", "-DBUSY=0")
    with subprocess.Popen([program], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert "no thread waited for input or called malloc" in refused(child.pid, tmp_path)
        time.sleep(0.2)
        assert child.poll() is None
        child.kill()


@needs_gdb
def test_a_position_dependent_program(recorder: Recorder, tmp_path: Path) -> None:
    """The address of a function in it is that of its own entry."""
    server = Server([recorder.program("server", "-no-pie", "-fno-pic", "-z", "now"), "2"])
    path = tmp_path / "a.swt"
    with recording(server.pid, path) as one:
        assert server.ask(f"burst {BURST}") == f"burst {BURST}"
    assert one.status == 0, one.said
    assert (sizes(path, lib.SW_OP_ALLOC) == BURST_BYTES).sum() == BURST
    assert server.end() == (-signal.SIGTERM, "")


PYTHON = """
import sys
kept = []
print("ready", flush=True)
for line in sys.stdin:
    kept.append(bytearray(int(line)))
    print("done", flush=True)
"""


@needs_gdb
@pytest.mark.parametrize("options", [(), ("--python-sites",)])
def test_python(tmp_path: Path, options: tuple[str, ...]) -> None:
    env = {**os.environ, "PYTHONMALLOC": "malloc"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", PYTHON], stdin=pipe, stdout=pipe, text=True, env=env
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        path = tmp_path / "a.swt"
        one = Attached(child.pid, path, "--for", "4s", *options)
        sent = 0
        while one.child.poll() is None:
            child.stdin.write("123456\n")
            child.stdin.flush()
            assert child.stdout.readline() == "done\n"
            sent += 1
            time.sleep(0.05)
        one.wait()
        child.stdin.close()
        assert child.wait() == 0
    assert one.status == 0, one.said
    big = sizes(path, lib.SW_OP_ALLOC) == 123457
    assert 10 < big.sum() <= sent
    assert sw.Recording.open(path).has_python_lines


# --- refusals -------------------------------------------------------------------------------------


def refused(pid: int, folder: Path, kind: type[Exception] = ProgramError) -> str:
    with pytest.raises(kind) as error:
        record_running(pid, folder / "refused.swt", AttachOptions(seconds=0.1))
    assert list(folder.glob("*refused*")) == []
    return str(error.value)


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["sleep", "100"]) as child:
        time.sleep(0.2)
        yield child.pid
        child.kill()


def test_no_such_process(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()
    assert refused(child.pid, tmp_path).endswith("no such process")
    assert "itself" in refused(os.getpid(), tmp_path)


def test_without_the_privilege(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: int
) -> None:
    fields_of = programs._fields_of

    def without(folder: Path) -> dict[str, str]:
        return {**fields_of(folder), "CapEff": "0"}

    monkeypatch.setattr(programs, "_fields_of", without)
    scope = tmp_path / "scope"
    monkeypatch.setattr(programs, "_YAMA", scope)
    scope.write_text("1\n", "ascii")
    assert "ptrace_scope is 1" in refused(sleeper, tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert "another user" in refused(sleeper, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(programs, "_YAMA", scope)
    scope.write_text("3\n", "ascii")
    assert "nobody" in refused(sleeper, tmp_path)


def test_traced_already(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: int) -> None:
    fields_of = programs._fields_of

    def traced(folder: Path) -> dict[str, str]:
        return {**fields_of(folder), "TracerPid": "77"}

    monkeypatch.setattr(programs, "_fields_of", traced)
    assert "process 77 traces it" in refused(sleeper, tmp_path)


def test_a_filter_of_system_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: int
) -> None:
    fields_of = programs._fields_of

    def filtered(folder: Path) -> dict[str, str]:
        more = {"Seccomp_filters": "1"} if folder.name == str(sleeper) else {}
        return {**fields_of(folder), "Seccomp_filters": "0", **more}

    monkeypatch.setattr(programs, "_fields_of", filtered)
    assert "seccomp" in refused(sleeper, tmp_path)


def test_without_gdb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: int) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "install the package gdb" in refused(sleeper, tmp_path, UnsupportedError)


def test_a_container(tmp_path: Path) -> None:
    words = ["unshare", "--mount", "sleep", "100"]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as child:
        time.sleep(0.5)
        if child.poll() is not None:
            pytest.skip("unshare --mount is not permitted")
        assert "container" in refused(child.pid, tmp_path)
        child.kill()


def test_a_static_program(tmp_path: Path) -> None:
    program = tmp_path / "static"
    source = tmp_path / "static.c"
    source.write_text("#include <unistd.h>\nint main(void) { return pause(); }\n", "ascii")
    done = subprocess.run([CC, "-static", "-o", program, source], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip("there is no static C library")
    with subprocess.Popen([program]) as child:
        time.sleep(0.2)
        assert "statically linked" in refused(child.pid, tmp_path)
        child.kill()


def test_another_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sleeper: int) -> None:
    real = programs.read_elf

    def read(path: str) -> programs.Elf | None:
        elf = real(path)
        other = elf is not None and path.startswith(f"/proc/{sleeper}/")
        return programs.Elf(64, 243, elf.interpreter, elf.needed) if other and elf else elf

    monkeypatch.setattr(programs, "read_elf", read)
    assert "RISC-V" in refused(sleeper, tmp_path)


def test_recorded_since_its_start(recorder: Recorder, tmp_path: Path) -> None:
    env = recorder.environment(tmp_path / "own.swt")
    with subprocess.Popen(["sleep", "100"], env=env) as child:
        time.sleep(0.3)
        assert "recorded already" in refused(child.pid, tmp_path)
        child.kill()


@needs_gdb
def test_attached_already(server: Server, tmp_path: Path) -> None:
    with recording(server.pid, tmp_path / "a.swt") as one:
        assert "recorded already" in refused(server.pid, tmp_path)
    assert one.status == 0, one.said
    assert sw.Recording.open(tmp_path / "a.swt").summary.gaps() == []


@needs_gdb
def test_an_output_that_the_program_cannot_write(recorder: Recorder, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root attaches to programs of other users")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    program = recorder.program("server")
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(program), "1"]
    shared = Path("/tmp") / f"spanwise-server-{os.getpid()}"
    shutil.copy(program, shared)
    try:
        server = Server([*words[:-2], str(shared), "1"])
        with pytest.raises(ProgramError, match="cannot create"):
            record_running(server.pid, folder / "a.swt", AttachOptions(seconds=0.1))
        assert server.ask("ping") == "pong"
        server.end()
    finally:
        shared.unlink()
