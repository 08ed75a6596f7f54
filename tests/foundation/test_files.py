"""Files and folders that appear whole or not at all, whatever happens to the process."""

import os
import signal
import subprocess
import sys
import time

import pytest

from infoflow import foundation
from infoflow.foundation import UserError, atomic_folder, atomic_write, check_own_folder, sweep_partial


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_new_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "deep" / "result.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent  # one file system, so the rename is atomic
    assert path.read_text() == "half"
    assert names(path.parent) == ["result.txt"]


@pytest.mark.parametrize(("umask", "file_mode", "folder_mode"), [(0o022, 0o644, 0o755), (0o027, 0o640, 0o750)])
def test_modes_follow_the_umask(tmp_path, umask, file_mode, folder_mode):
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "file") as temporary:
            temporary.unlink()
            temporary.touch(0o600)  # as libraries do that replace what they write
        with atomic_folder(tmp_path / "folder") as temporary:
            (temporary / "sub").mkdir(0o700)
            (temporary / "sub" / "weights").touch(0o600)
    finally:
        os.umask(before)
    paths = [tmp_path / "file", tmp_path / "folder", *(tmp_path / "folder").rglob("*")]
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    assert modes == {"file": file_mode, "folder": folder_mode, "sub": folder_mode, "weights": file_mode}


def test_what_killed_processes_left_is_swept_and_a_living_ones_is_not(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".run.json.{dead.pid}-0a1b2c3d.partial").touch()
    (tmp_path / "deep" / f".model.{dead.pid}-0a1b2c3d.partial" / "inside").mkdir(parents=True)
    (tmp_path / "deep" / ".result.x7f_q2.partial").touch()  # of an earlier version
    (tmp_path / "mine.partial").touch()
    with atomic_write(tmp_path / "file") as temporary, atomic_folder(tmp_path / "folder"):
        sweep_partial(tmp_path)
        temporary.write_text("whole")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "file", "folder", "mine.partial"]


def test_writing_again_removes_what_a_killed_writer_left(tmp_path):
    killed = (
        "import os, sys; from infoflow.foundation import atomic_folder\nwith atomic_folder(sys.argv[1]): os._exit(9)"
    )
    for name in ("index", "index.old"):
        subprocess.run([sys.executable, "-c", killed, str(tmp_path / name)], check=False)
    assert len(names(tmp_path)) == 2
    with atomic_folder(tmp_path / "index"), atomic_folder(tmp_path / "index"):
        pass
    with atomic_folder(tmp_path / "index.old"):
        pass
    assert sorted(names(tmp_path)) == ["index", "index.old"]


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path):
    path = tmp_path / ("ü" * 127)
    with atomic_write(path) as temporary:
        temporary.write_text("kept")
    assert path.read_text() == "kept"
    with pytest.raises(UserError, match="cannot be written: file name too long"), atomic_write(tmp_path / ("a" * 256)):
        pass


def test_an_error_leaves_the_old_file_and_no_trace(tmp_path):
    path = tmp_path / "result.txt"
    path.write_text("old")

    def interrupted():
        with atomic_write(path) as temporary:
            temporary.write_text("new, half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["result.txt"]


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "model"
    for content in ("first", "second"):
        with atomic_folder(path) as temporary:
            (temporary / "sub").mkdir()
            (temporary / "sub" / content).write_text(content)
    assert names(path / "sub") == ["second"]
    assert names(tmp_path) == ["model"]


def test_an_error_leaves_the_old_folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "weights").write_text("old")

    def broken():
        with atomic_folder(path) as temporary:
            (temporary / "weights").write_text("new")
            raise ValueError("full disk")

    with pytest.raises(ValueError, match="full disk"):
        broken()
    assert (path / "weights").read_text() == "old"
    assert names(tmp_path) == ["model"]


WRITER = """
import sys
from infoflow.foundation import atomic_write
path, number = sys.argv[1], 0
while True:
    number += 1
    with atomic_write(path) as temporary:
        with temporary.open("w") as file:
            for _ in range(200):
                file.write(f"{number}\\n" * 50)
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011])
def test_kill_9_at_any_moment_leaves_a_whole_file(tmp_path, delay):
    path = tmp_path / "result.txt"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        for _ in range(3):
            writer.stdout.readline()
        time.sleep(delay)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    lines = path.read_text().splitlines()
    assert len(lines) == 10_000
    assert len(set(lines)) == 1
    assert int(lines[0]) >= 3


@pytest.mark.parametrize("writes", ["atomic_write", "atomic_folder"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, writes):
    (tmp_path / "file").write_text("kept")
    with (
        pytest.raises(foundation.UserError, match=r"file/deep cannot be written: .*\. Choose another path"),
        getattr(foundation, writes)(tmp_path / "file" / "deep"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_in_a_file_s_place_is_told(tmp_path):
    (tmp_path / "table.parquet").mkdir()
    with (
        pytest.raises(UserError, match=r"table\.parquet is a folder, but a file must be written there\. Move it"),
        atomic_write(tmp_path / "table.parquet") as temporary,
    ):
        temporary.write_text("never")
    assert names(tmp_path) == ["table.parquet"]


def test_a_folder_with_nothing_but_what_a_killed_command_left_is_its_own(tmp_path):
    (tmp_path / ".run.json.1-0a1b2c3d.partial").touch()
    check_own_folder(tmp_path, "run.json", "A curve")
    (tmp_path / "mine").touch()
    with pytest.raises(UserError, match=r"contains other files \(mine, \.\.\.\)"):
        check_own_folder(tmp_path, "run.json", "A curve")
