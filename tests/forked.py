"""Scripts that need not import torch again: in a process of their own, for tests that kill what they start, or here."""

import multiprocessing
import runpy
import sys
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")  # a process without threads, which can be forked safely
_SERVER.set_forkserver_preload(["infoflow.dynamics", "infoflow.training"])


def run_here(script: Path, *arguments: str | Path) -> None:
    """Run a script in this process, as `python SCRIPT ARGUMENTS` would."""
    before = sys.argv
    sys.argv = [str(script), *map(str, arguments)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = before


def run_script(script: Path, *arguments: str | Path) -> int:
    """Run a script as `python SCRIPT ARGUMENTS` would; its exit code, negative for the signal that killed it."""
    process = _SERVER.Process(target=run_here, args=(script, *arguments))
    process.start()
    process.join(timeout=300)
    assert process.exitcode is not None, f"{script} did not end"
    return process.exitcode
