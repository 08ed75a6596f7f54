"""The origin of a number: versions, hardware, command, time."""

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "accelerate",
    "numpy",
    "scipy",
    "scikit-learn",
    "pandas",
)


def provenance() -> dict[str, Any]:
    """Versions of infoflow and its dependencies, the hardware, the command and the time (UTC), as plain JSON."""
    return {
        "infoflow": version("infoflow"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "command": command_line(sys.argv, _main_module()),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def public_provenance() -> dict[str, Any]:
    """The same without the command, which names the user's files, for data that is shared."""
    return {name: value for name, value in provenance().items() if name != "command"}


def command_line(arguments: Sequence[str], module: str = "") -> str:
    """The command that runs a program with these arguments again, quoted for a shell.

    Args:
        arguments: `sys.argv`, the program first.
        module: Its module name if it was started by `python -m`.
    """
    program = arguments[0]
    if not program:  # typed at Python's prompt
        return ""
    if module and module != "__main__":
        start = ["python", "-m", module.removesuffix(".__main__")]
    elif program.endswith(".py"):
        start = ["python", program]
    else:
        start = [Path(program).name]
    return shlex.join([*start, *arguments[1:]])


def _main_module() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else ""


@cache
def version(package: str) -> str:
    """The installed version of a package, or `"absent"`."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@cache
def processor() -> str:
    """The processor's name; Linux hides it from `platform.processor`."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
