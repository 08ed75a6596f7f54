"""Scripts in processes of their own that need not import torch again: for tests that kill what they start."""

import multiprocessing
import runpy
import sys
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")  # a process without threads, which can be forked safely
_SERVER.set_forkserver_preload(["infoflow.dynamics", "infoflow.training"])


def run_script(script: Path, *arguments: str | Path) -> int:
    """Run a script as `python SCRIPT ARGUMENTS` would; its exit code, negative for the signal that killed it."""
    process = _SERVER.Process(target=_run, args=(str(script), list(map(str, arguments))))
    process.start()
    process.join(timeout=300)
    assert process.exitcode is not None, f"{script} did not end"
    return process.exitcode


def _run(script: str, arguments: list[str]) -> None:
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")
