"""Command-line sources of a series of checkpoints."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from infoflow.foundation import UserError
from infoflow.models import at_revision

from ._folder_series import folder_series
from ._hub_series import braced_series, hub_series
from ._series import GRAMMAR, CheckpointSeries

_MOST = 1000  # maximum number of repositories from braces


def read_series(sources: Sequence[str], steps: Mapping[str, int] | None = None) -> list[CheckpointSeries]:
    """The series of checkpoints from these sources; hub weights are not fetched yet.

    | source | its checkpoints |
    |---|---|
    | `NAME@step1000,step2000` | these revisions of a repository |
    | `NAME@all`, `NAME@log:12`, `NAME@1000..20000` | all, 12 evenly in log time, or those of a range of steps |
    | `google/multiberts-seed_0-step_{20k,40k}` | a repository each |
    | a folder | its `checkpoint-*`, `step-*` or the like; with `@log:12` or a range some of them |
    | a run folder | those of its models, a series each |

    Args:
        sources: One or several sources.
        steps: The update of each checkpoint whose name does not contain it.

    Raises:
        UserError: A source cannot be read, or has no checkpoints.
    """
    found = [series for source in sources for series in _read(source, steps or {})]
    names = [series.name for series in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Each series of checkpoints must be given once. Got {twice[0]} twice.")
    return found


def _read(source: str, steps: Mapping[str, int]) -> list[CheckpointSeries]:
    if not source.strip():
        raise UserError(f"A series of checkpoints is a folder, or {GRAMMAR}. Got an empty name.")
    if os.path.exists(source):  # noqa: PTH110 (that of pathlib raises for names that are too long)
        return folder_series(Path(source), "all", steps)
    name, behind = at_revision(source)
    at, choice = behind is not None, behind or ""
    if at and not choice:
        raise UserError(f"{source[:120]} names no revision behind its @. Write {GRAMMAR}.")
    if at and os.path.isdir(name):  # noqa: PTH112 (as above)
        return folder_series(Path(name), choice, steps)
    if "{" in source:
        return braced_series(source, _braces(source), steps)
    if not at and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise UserError(f"No folder at {source[:200]}. Check the path, or write {GRAMMAR}.")
    if not at:
        raise UserError(
            f"{source[:120]} names one model. Say which of its revisions: {source[:120]}@all, {source[:120]}@log:12 or "
            f"@1000..20000; to measure it as it is: infoflow analyze {source[:120]}"
        )
    return hub_series(name, choice, steps)


def _braces(source: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    found = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", source)
    parts = [part.strip() for part in found[2].split(",")] if found else []
    if found is None or not all(parts) or len(set(parts)) < len(parts) or len(parts) > _MOST:
        raise UserError(
            f"Braces hold parts of names, such as google/multiberts-seed_0-step_{{20k,40k}}. Got {source[:120]}."
        )
    return [f"{found[1]}{part}{found[3]}" for part in parts]
