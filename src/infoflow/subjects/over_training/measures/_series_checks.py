"""All checks of a series of checkpoints, to run before interpreting it."""

from collections.abc import Sequence

from ._check_rows import CheckRow, SeriesChecks, WeighedCheckpoint, in_order, without
from ._content_checks import content_checks
from ._loss_checks import loss_checks
from ._series import Missing
from ._twin_checks import same_weights, twin_checks
from ._way_checks import outliers, way_checks


def check_series(series: Sequence[WeighedCheckpoint], missing: Sequence[Missing] = ()) -> SeriesChecks:
    """K1 to K12 for a training's checkpoints, in order of updates.

    Checkpoints with an error are left out of the following checks: an outlier affects the distances of its neighbours.
    """
    ordered = in_order(series)
    gaps = [
        CheckRow(
            name=one.name,
            update=one.update,
            check="K12",
            level="error" if one.lost else "warning",
            message=f"{one.name}: {one.why}",
        )
        for one in missing
    ]
    rows = content_checks(ordered, gaps)
    rows += twin_checks(without(ordered, rows))
    rows += outliers(without(ordered, rows))
    rows += way_checks(without(ordered, rows))
    rows += loss_checks(without(ordered, rows))
    return SeriesChecks(rows=tuple(rows), same_as=same_weights(ordered))
