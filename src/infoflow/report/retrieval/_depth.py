"""Where evidence enters, against where memory is read: lens curves with their halves and centres."""

import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import sentence
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._lines import SHARE
from ._depth_chart import depth_chart, fewer_seeds, lens_of, marks_of, place_text
from ._methods import ENTERS
from ._rows import drawn, plain_arms, seeds_note, span

_PANELS = (
    ("gold", "held out", "evidence: right passage, facts held out"),
    ("retrieved", "held out", "what is found: first passage found, facts held out"),
    ("none", "trained", "memory: no passage, trained facts"),
)
_VERBS = {"evidence": "enters", "what is found": "enters", "memory": "is read"}
_APART = 0.25  # states between two centres that are told apart in words


def depth_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for evidence, one for what readers find themselves and one for memory; None where no lens was read."""
    own = plain_arms(frame)
    own = own[(own["place"] == "mask") & (own["weight"] == -1)]
    lens = lens_of(own)
    curves = of(own, lens=lens, metric="probability")
    if curves.empty or not bool(curves["trained"].any()):
        return None
    data = drawn(curves, ["document", "facts", "layer"], models, SHARE)
    marks = marks_of(own[own["lens"] == lens], ["document", "facts"], models)
    panels, told = [], []
    ends = span(data, 0.0)
    for document, facts, title in _PANELS:
        rows, at = (of(each, document=document, facts=facts) for each in (data, marks))
        if len(rows):
            panels.append(Panel(spec=depth_chart(rows, at, models, ends), title=title))
            told += _sentences(at, title.split(":")[0])
    if not panels:
        return None
    found = "retrieved" in set(data["document"].astype(str))
    return ReportFigure(
        id="evidence-depth",
        question="Where does evidence enter, and where is memory read?",
        words=_order(marks),
        answer=told or ["No line gains enough for a depth to be told."],
        panels=panels,
        caption=f"{seeds_note(data)} {lens.capitalize()} lens at the mask. Large marks: the centre of the gain, at the "
        f"height of the last state's half{fewer_seeds(marks)}; dashed grey: untrained.",
        how_to_read=[
            "Across: states, 0 the embeddings. Up: the probability of the right object that the lens reads there. The "
            "large mark of a line is its centre: the mean state at which its probability arises.",
            "Facts held out are in no weight, so what rises in the first panel came from the passage; "
            f"{_further(found)} It would be surprising if the closed book rose in the first.",
        ],
        method=ENTERS,
        data=data,
        tables=("knowledge_lens",),
        findings=("retrieval:R-23",),
        payload={"apart": True},
    )


def _further(found: bool) -> str:
    """What the panels behind the first have."""
    if not found:
        return "the second has none."
    return (
        "the second has the passage that a reader puts first itself, which is the right one for some of the questions; "
        "the third has none. Where evidence is found it enters at the depth of the first panel."
    )


def _order(marks: pd.DataFrame) -> str:
    """In which line evidence enters lowest and highest, and memory is read, by the centres."""
    said = []
    for document, facts, title in _PANELS:
        rows = of(marks, document=document, facts=facts).dropna(subset="centre").sort_values("centre")
        if len(rows) > 1 and rows["centre"].iloc[-1] - rows["centre"].iloc[0] >= _APART:
            what, first, last = title.split(":")[0], rows["name"].iloc[0], rows["name"].iloc[-1]
            said.append(f"{what} {_VERBS[what]} lowest in {first} and highest in {last}")
    return sentence("; ".join(said))


def _sentences(marks: pd.DataFrame, what: str) -> list[str]:
    return [
        f"In {row['name']} {what} {_VERBS[what]} {place_text(row)}."
        for row in marks.to_dict("records")
        if np.isfinite(row["centre"])
    ]
