"""Where memory is read, of rare and of frequent facts: lens curves without a passage."""

import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._lines import SHARE
from ._depth_chart import depth_chart, fewer_seeds, lens_of, marks_of, place_text
from ._methods import ENTERS
from ._rows import by_exposure, drawn, plain_arms, seeds_note, span

_CONTROL = "withheld"


def memory_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each exposure, and facts withheld as the control; None where no lens reads a fact by heart."""
    own = of(plain_arms(frame), place="mask", document="none")
    lens = lens_of(own)
    own = by_exposure(own[own["lens"] == lens])
    own = own[own["exposure"] != "held out"]
    marks = marks_of(own[own["facts"] == "trained"], ["exposure", "place"], models).dropna(subset="centre")
    curves = own[own["metric"] == "probability"]
    if marks.empty or curves.empty:
        return None
    data = drawn(curves, ["exposure", "place", "layer"], models, SHARE).sort_values("place", kind="stable")
    ends = span(data, 0.0)
    return ReportFigure(
        id="memory-exposure",
        question="Is memory of frequent facts read at another depth than that of rare ones?",
        answer=[_told(of(marks, series=one.key), one.label) for one in models.present(marks)],
        panels=[
            Panel(spec=depth_chart(rows, of(marks, exposure=exposure), models, ends), title=_title(str(exposure)))
            for exposure, rows in data.groupby("exposure", sort=False)
        ],
        caption=f"{seeds_note(data)} {lens.capitalize()} lens at the mask, no passage. Large marks: the centre of what "
        f"is gained over a guess, at the height of the last state's half{fewer_seeds(marks)}; dashed grey: untrained.",
        how_to_read=[
            "Across: states, 0 the embeddings. Up: the probability of the right object that the lens reads there, "
            "without a passage. A panel for each exposure: 1× are the rarest trained facts. The large mark of a line "
            "is the mean state at which its probability arises.",
            "Withheld facts stand nowhere, so a line that rises there would be no memory: they are the control. It "
            "would be surprising if rare facts were known better than frequent ones.",
        ],
        method=ENTERS,
        data=data,
        tables=("knowledge_lens",),
        findings=("retrieval:R-23",),
        payload={"apart": True},
    )


def _title(exposure: str) -> str:
    return "withheld facts (control)" if exposure == _CONTROL else f"trained facts, {exposure}"


def _told(marks: pd.DataFrame, name: str) -> str:
    said = [
        f"of facts asked {row['exposure']} it is read {place_text(row)}"
        for row in marks.sort_values("place").to_dict("records")
        if np.isfinite(row["centre"])
    ]
    return f"In {name}, {listed(said)}."
