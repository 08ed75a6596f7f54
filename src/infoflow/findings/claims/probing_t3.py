"""probing:T-3. Scores of probes that see one layer more."""

import numpy as np

from .._condition import SHARE, Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import cumulative_shape
from .._sources import PIPELINE
from .._table import Reading, untrained

READS: dict[str, Reading] = {"shape": cumulative_shape(MASKED)}


def test(curves: Curves) -> list[Condition]:
    falling, peaks = curves["shape"][:, :1], curves["shape"][:, 1:2]
    return [
        stays_below("share of steps at which a score falls", falling, 0.5, "share of steps", bounds=SHARE, alone=False),
        exceeds(
            "share of tasks whose score is highest below the top",
            peaks,
            np.nextafter(0.5, 0.0),
            "share of tasks",
            bounds=SHARE,
            of=int(curves["shape"][0, 2]),
            published=9 / 11,
        ),
    ]


FINDING = Finding(
    id="probing:T-3",
    claim="A probe that sees one layer more is mostly no worse, but the top layer often takes a little away.",
    source=PIPELINE,
    published="BERT-base: 9 of 11 tasks are best below layer 12, usually by at most .4 F1",
    statistic="cumulative scores: fewer than half of all steps fall, and at least half of the tasks are best below the "
    "top",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
