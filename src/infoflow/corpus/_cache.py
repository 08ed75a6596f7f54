"""Where downloads, converted corpora and encoded corpora are kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$INFOFLOW_CACHE`, else `infoflow` under `$XDG_CACHE_HOME`, else `~/.cache/infoflow`; safe to delete."""
    if own := os.environ.get("INFOFLOW_CACHE"):
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says that a relative path must be ignored.
    base = Path(shared) if shared and Path(shared).is_absolute() else Path.home() / ".cache"
    return base / "infoflow"
