"""A command of infoflow in a fork of this process, within limits of time and memory."""

import importlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

UNDRAWN = Path(__file__).parent / "undrawn"  # a drawing engine that draws nothing, for processes with little memory
PATIENCE = 20  # seconds of the clock for one of the processor: the machine may be busy
MEMORY = 8 << 30  # bytes of address space beyond what this process holds: a hostile file must not take the machine


def answer(
    arguments: Iterable[str], folder: Path, limit: int, within: Callable[[], object] | None = None
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command in a fork; a negative code is a signal."""
    files = [folder.with_name(f"{folder.name}.{name}") for name in ("stdout", "stderr")]
    sys.stdout.flush()
    if not (process := os.fork()):
        _command(list(arguments), folder, files, limit, within)
    _, status = os.waitpid(process, 0)
    return os.waitstatus_to_exitcode(status), *(file.read_text(errors="replace") for file in files)


def _command(
    arguments: list[str], folder: Path, files: list[Path], limit: int, within: Callable[[], object] | None
) -> None:
    os.setsid()
    signal.alarm(PATIENCE * limit)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    code = 1
    try:
        for number, file in enumerate(files, 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(UNDRAWN), *filter(None, [os.environ.get("PYTHONPATH")])])
        sys.argv = ["infoflow", *arguments]
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        if within is not None:
            within()
        importlib.import_module("infoflow.cli").main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError):  # closed by the user's own code
                stream.flush()
        sys.stdout = nowhere
    os._exit(code)
