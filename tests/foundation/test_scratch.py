"""Temporary folders of killed processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLED = """
import fcntl, os, tempfile
from infoflow.foundation import scratch_folder
DIE
with scratch_folder() as folder:
    (folder / "states.npy").write_bytes(b"x" * 1000)
    os.kill(os.getpid(), 9)
"""
TOGETHER = """
from infoflow.foundation import scratch_folder
for _ in range(50):
    with scratch_folder() as folder:
        (folder / "states.npy").write_bytes(b"x")
        assert (folder / "states.npy").exists()
"""
DIE = {
    "at work": "",
    "before it locks its folder": "fcntl.flock = lambda *_: os.kill(os.getpid(), 9)",
    "before it has a lock": "tempfile.gettempdir(); os.open = lambda *_: os.kill(os.getpid(), 9)",
}


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
@pytest.mark.parametrize("moment", DIE)
def test_what_a_killed_process_left_goes_and_what_lives_stays(moment, tmp_path, monkeypatch):
    import tempfile

    from infoflow.foundation import scratch_folder

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    mine = tmp_path / "infoflow-of-somebody"
    mine.mkdir()
    script = KILLED.replace("DIE", DIE[moment])
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    (left,) = set(tmp_path.iterdir()) - {mine}
    with scratch_folder() as first:
        assert not left.exists()
        with scratch_folder() as second:
            assert first.is_dir()
            assert second.is_dir()
    assert list(Path(tmp_path).iterdir()) == [mine]


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_processes_that_begin_together_keep_their_folders(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", TOGETHER], env=environment) for _ in range(4)]
    assert [process.wait() for process in started] == [0] * 4
    assert list(tmp_path.iterdir()) == []
