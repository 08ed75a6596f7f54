"""Vega-Lite's engine in a separate process: under a memory limit it traps, and must not take the results with it."""

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError

_lock = threading.Lock()


def svg_of(spec: dict[str, Any]) -> str:
    """A chart as SVG."""
    return _call("vegalite_to_svg", spec).decode()


def png_of(svg: str, scale: float) -> bytes:
    """An SVG as PNG."""
    return _call("svg_to_png", svg, scale=scale)


def pdf_of(svg: str) -> bytes:
    """An SVG as PDF, fonts embedded."""
    return _call("svg_to_pdf", svg)


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    return _call("javascript_bundle").decode()


def _call(name: str, *arguments: Any, **options: Any) -> bytes:
    request = json.dumps({"name": name, "arguments": arguments, "options": options}) + "\n"
    with _lock:
        process = _process(os.getpid())
        try:
            process.stdin.write(request.encode())
            process.stdin.flush()
            head = json.loads(process.stdout.readline())
            content = process.stdout.read(head.get("bytes", 0))
        except (OSError, ValueError):  # the process ended: a closed pipe, or an incomplete answer
            raise _ended(process) from None
        if len(content) < head.get("bytes", 0):
            raise _ended(process)
    if "error" in head:
        raise RuntimeError(f"The drawing engine refused a chart: {head['error']}")
    return content


@cache
def _process(owner: int) -> Any:
    """The engine of this process; an engine inherited by a fork belongs to the parent."""
    command = [sys.executable, str(Path(__file__).with_name("_drawer.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    atexit.register(_stop, process, owner)
    return process


def _stop(process: Any, owner: int) -> None:
    if os.getpid() != owner:
        return
    with suppress(OSError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    process.stdout.close()


def _ended(process: Any) -> UserError:
    _process.cache_clear()
    _stop(process, os.getpid())
    code = process.poll()
    how = f"exit code {code}"
    if code is not None and code < 0:
        with suppress(ValueError):
            how = signal.Signals(-code).name
    return UserError(
        f"The charts could not be drawn: the drawing engine ended ({how}). It uses about 0.2 GB of memory, reserves "
        "70 GB of addresses, and so needs a shell without a limit on these (ulimit -v).\n"
        "All tables are written. Raise the limit (ulimit -v unlimited), then draw: infoflow report RUN_FOLDER"
    )
