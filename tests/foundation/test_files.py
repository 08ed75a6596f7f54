"""Files and folders that appear whole or not at all, whatever happens to the process."""

import os
import signal
import subprocess
import sys
import time

import pytest


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_a_new_file_appears_when_it_is_complete(tmp_path):
    from infoflow.foundation import atomic_write

    path = tmp_path / "deep" / "result.txt"
    with atomic_write(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent  # one file system, so the rename is atomic
    assert path.read_text() == "half"
    assert names(path.parent) == ["result.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_error_leaves_the_old_file_and_no_trace(tmp_path):
    from infoflow.foundation import atomic_write

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
    from infoflow.foundation import atomic_folder

    path = tmp_path / "model"
    for content in ("first", "second"):
        with atomic_folder(path) as temporary:
            (temporary / "sub").mkdir()
            (temporary / "sub" / content).write_text(content)
    assert names(path / "sub") == ["second"]
    assert names(tmp_path) == ["model"]


def test_an_error_leaves_the_old_folder(tmp_path):
    from infoflow.foundation import atomic_folder

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
    from infoflow import foundation

    (tmp_path / "file").write_text("kept")
    with (
        pytest.raises(foundation.UserError, match=r"file/deep cannot be written: .*\. Choose another place"),
        getattr(foundation, writes)(tmp_path / "file" / "deep"),
    ):
        pass
    assert (tmp_path / "file").read_text() == "kept"
