"""Runs a command that is stopped at a published file: `SIGNAL NUMBER FOLDER COMMAND...`; 0 is none of them.

The folder gets a file `published` with the name of each. SIGINT comes behind the file, SIGKILL before it has its name.
Files whose number varies with the machine's speed do not count: those of other threads (a run saves its clock every
10 seconds), and what stages took (below a twentieth of a second there is no record).
"""

import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from support.undrawn import undrawn

from infoflow.cli import run

name, number, folder, *command = sys.argv[1:]
published, names = Path(folder) / "published", list[str]()
rename = Path.replace


def publish(path: Path, target: Path) -> Path:
    if threading.current_thread() is not threading.main_thread() or target.parent.name == "stages":
        return rename(path, target)
    names.append(target.name)
    published.write_text("\n".join(names))
    last = len(names) == int(number)
    if last and name == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    renamed = rename(path, target)
    if last:
        os.kill(os.getpid(), signal.SIGINT)
    return renamed


os.fsync = os.fstat
os.chdir(folder)
os.environ["TMPDIR"] = str(Path(folder, "temporary"))
tempfile.tempdir = None
for descriptor, stream in ((1, "out"), (2, "err")):
    os.dup2(os.open(f"std{stream}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
with undrawn(), pytest.MonkeyPatch.context() as patch:
    patch.setattr("infoflow.studies._analyze.write_report", lambda run: run.report.touch() or run.report)
    patch.setattr(Path, "replace", publish)
    sys.exit(run(command))
