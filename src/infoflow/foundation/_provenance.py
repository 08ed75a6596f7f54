"""Where a number came from: versions, hardware, command, time."""

import importlib.metadata
import os
import platform
import sys
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
    """Versions of infoflow and what it stands on, the hardware, the command and the time (UTC), as plain JSON."""
    return {
        "infoflow": version("infoflow"),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def version(package: str) -> str:
    """The installed version of a package, or `"absent"`."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


@cache
def _processor() -> str:
    """The processor's name; Linux hides it from `platform.processor`."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()
