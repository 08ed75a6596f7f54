"""What Windows refuses and has otherwise, emulated: files held by others, a kernel of its own, locks of bytes."""

import errno
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from infoflow.foundation import atomic_folder, lock_file, sweep_partial

MACHINE = "infoflow.foundation._machine"


@pytest.fixture
def windows(monkeypatch):
    """The branch of Windows; pauses are noted, and take no time."""
    paused: list[float] = []
    monkeypatch.setattr(f"{MACHINE}.WINDOWS", True)
    monkeypatch.setattr(f"{MACHINE}.time.sleep", paused.append)
    return paused


def _refusing(monkeypatch, times: int, name: str = "") -> list[Path]:
    """`Path.replace` refuses so often what lands at `name`, as Windows does while another program has a file open."""
    refused: list[Path] = []
    replace = Path.replace

    def refusing(self, target):
        if len(refused) < times and (not name or name in (self.name, Path(target).name)):
            refused.append(Path(target))
            raise PermissionError(errno.EACCES, "Access is denied", str(self), 5, str(target))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refusing)
    return refused


def test_a_file_that_is_held_for_a_moment_is_replaced_after_it(windows, monkeypatch, tmp_path):
    from infoflow.foundation import atomic_write

    (tmp_path / "report.pdf").write_text("old")
    refused = _refusing(monkeypatch, 2)
    with atomic_write(tmp_path / "report.pdf") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "report.pdf").read_text() == "new"
    assert len(refused) == len(windows) == 2


def test_a_file_that_another_program_keeps_open_is_named_and_stays(windows, monkeypatch, tmp_path):
    from infoflow.foundation import UserError, atomic_write

    (tmp_path / "report.pdf").write_text("old")
    _refusing(monkeypatch, 1000)
    with (
        pytest.raises(UserError, match=r"report\.pdf is open in another program.*Close it there"),
        atomic_write(tmp_path / "report.pdf") as temporary,
    ):
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["report.pdf"]
    assert (tmp_path / "report.pdf").read_text() == "old"
    assert 1 < sum(windows) < 3


def test_a_folder_with_an_open_file_stays_whole(windows, monkeypatch, tmp_path):
    from infoflow.foundation import UserError, atomic_folder

    (tmp_path / "model").mkdir()
    for name in ("a", "b"):
        (tmp_path / "model" / name).write_text("old")
    _refusing(monkeypatch, 1000, "model")
    with pytest.raises(UserError, match="model is open"), atomic_folder(tmp_path / "model") as temporary:
        (temporary / "a").write_text("new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "model"]


def test_a_folder_is_replaced_as_a_whole(windows, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "b").write_text("old")
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "a").write_text("new")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "model"]


def test_a_folder_named_after_its_content_may_be_there_already(windows, monkeypatch, tmp_path):
    from infoflow.foundation import atomic_folder

    with atomic_folder(tmp_path / "cached", keep_existing=True):
        (tmp_path / "cached").mkdir()
        _refusing(monkeypatch, 1000, "cached")
    assert [path.name for path in tmp_path.iterdir()] == ["cached"]


def test_elsewhere_a_refusal_is_told_at_once(monkeypatch, tmp_path):
    from infoflow.foundation import UserError, atomic_write

    monkeypatch.setattr(f"{MACHINE}.WINDOWS", False)
    refused = _refusing(monkeypatch, 1000)
    with pytest.raises((PermissionError, UserError)), atomic_write(tmp_path / "report.pdf") as temporary:
        temporary.write_text("new")
    assert len(refused) == 1


def _taken_for_alive(process: int, folder: Path) -> bool:
    """Whether what a process of this number has left half-written stays: it may still write."""
    left = folder / f".table.{process}-host-0.partial"
    left.touch()
    sweep_partial(folder)
    return left.exists()


class _Kernel:
    """`kernel32`: the process 7 runs, 8 has ended and is still known, 9 is another user's, others never were."""

    error = 0
    closed: list[int] = []  # noqa: RUF012 (one kernel)

    def OpenProcess(self, access, inherit, number):
        _Kernel.error = {7: 0, 8: 0, 9: 5}.get(number.value, 87)
        return number.value if _Kernel.error == 0 else None

    OpenProcess.restype = None

    def WaitForSingleObject(self, handle, milliseconds):
        return 0x102 if handle.value == 7 else 0

    def CloseHandle(self, handle):
        self.closed.append(handle.value)


class _Functions:
    """Methods that take attributes, as functions of a library do."""

    def __init__(self, kernel: _Kernel) -> None:
        for name in ("OpenProcess", "WaitForSingleObject", "CloseHandle"):
            method = getattr(kernel, name)
            setattr(self, name, lambda *arguments, method=method: method(*arguments))


@pytest.mark.parametrize(("process", "alive"), [(7, True), (8, False), (9, True), (10, False), (1 << 40, False)])
def test_processes_are_looked_for_without_a_signal(windows, monkeypatch, tmp_path, process, alive):
    """There signal 0 is Ctrl-C, and reaches whoever shares the console."""
    import ctypes

    def kill(number, signal):
        raise AssertionError("a signal was sent")

    monkeypatch.setattr(os, "kill", kill)
    monkeypatch.setattr(f"{MACHINE}.windows_kernel", lambda: _Functions(_Kernel()))
    monkeypatch.setattr(ctypes, "get_last_error", lambda: _Kernel.error, raising=False)
    _Kernel.closed.clear()
    assert _taken_for_alive(process, tmp_path) == alive
    assert _Kernel.closed == ([process] if process in (7, 8) else [])


def test_free_memory_is_asked_of_the_kernel(windows, monkeypatch):
    from infoflow.foundation import available_memory

    kernel = types.SimpleNamespace()

    def told(pointer):
        status = pointer._obj
        assert status.length == 64  # as the documentation of Windows has it
        status.free_memory, status.free = 3_000, 5_000  # less than any machine that runs this has
        return 1

    kernel.GlobalMemoryStatusEx = told
    monkeypatch.setattr(f"{MACHINE}.windows_kernel", lambda: kernel)
    assert available_memory() == 5_000
    kernel.GlobalMemoryStatusEx = lambda pointer: 0
    assert available_memory() != 5_000
    kernel.GlobalMemoryStatusEx = told
    monkeypatch.setattr(f"{MACHINE}.WINDOWS", False)
    assert available_memory() != 5_000


def test_processes_are_found_here(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert _taken_for_alive(os.getppid(), tmp_path)
    assert not _taken_for_alive(dead.pid, tmp_path)
    assert not _taken_for_alive(1 << 80, tmp_path)


@pytest.fixture
def bytes_locked(monkeypatch):
    """`msvcrt`: locks of bytes by file and place; what is closed is free."""
    held: dict[tuple[int, int], int] = {}

    def locking(descriptor, mode, count):
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        holder = held.get(place)
        if holder not in (None, descriptor):
            try:
                os.fstat(holder)
            except OSError:
                pass
            else:
                raise OSError(errno.EACCES, "Permission denied")
        held[place] = descriptor

    module = types.ModuleType("msvcrt")
    vars(module).update(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    return held


def test_one_byte_of_a_file_is_its_lock(windows, bytes_locked, tmp_path):
    with (tmp_path / ".lock").open("w+") as first, (tmp_path / ".lock").open("w+") as second:
        assert lock_file(first.fileno())
        with pytest.raises(BlockingIOError):
            lock_file(second.fileno())
        assert os.lseek(second.fileno(), 0, os.SEEK_CUR) == 0  # whoever writes there writes at the begin
        assert min(place for _, place in bytes_locked) > 1_000_000  # what is locked cannot be read by others
    with (tmp_path / ".lock").open("w+") as third:
        assert lock_file(third.fileno())


def test_who_waits_gets_the_lock_when_it_is_free(windows, bytes_locked, monkeypatch, tmp_path):
    from infoflow.foundation import lock_file

    with (tmp_path / ".lock").open("w+") as first, (tmp_path / ".lock").open("w+") as second:
        lock_file(first.fileno())
        monkeypatch.setattr(f"{MACHINE}.time.sleep", lambda seconds: bytes_locked.clear())
        assert lock_file(second.fileno(), wait=True)


def test_the_lock_s_file_is_gone_afterwards_where_open_files_stay(windows, bytes_locked, monkeypatch, tmp_path):
    from infoflow.foundation import locked

    unlink, tried = Path.unlink, []

    def refusing(self, missing_ok=False):
        tried.append(self)
        if len(tried) == 1:
            raise PermissionError(errno.EACCES, "used by another process")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", refusing)
    with locked(tmp_path / "cached") as alone:
        assert alone
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks_is_told(windows, monkeypatch, tmp_path):
    from infoflow.foundation import lock_file

    def locking(descriptor, mode, count):
        raise OSError(errno.EINVAL, "Invalid argument")

    module = types.ModuleType("msvcrt")
    vars(module).update(locking=locking, LK_NBLCK=2)
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    with (tmp_path / ".lock").open("w") as file:
        assert lock_file(file.fileno()) is False
