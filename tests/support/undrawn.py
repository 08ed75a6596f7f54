"""Studies and analyses that end with an empty report: drawing one takes several seconds, and has tests of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_WRITERS = (
    "studies._analyze",
    "studies._study",
    "subjects.over_scale.stages._over_scale",
    "subjects.over_training.stages._over_training",
)


@contextmanager
def undrawn() -> Iterator[None]:
    """Inside, no report is drawn in this process; what a script sets there in its place is put back."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _WRITERS:
            patch.setattr(f"infoflow.{module}.write_report", _touch)
        yield


def _touch(run) -> Path:
    run.report.touch()
    return run.report
