"""Lines over exposure: what is answered with each document, how many bits are stored, whom a reader believes."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import most_and_least, sentence
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._chart import BASELINE, amount, finished, tips
from ..forms._lines import SHARE, lines, looks_of
from ..forms._names import names_above
from ._methods import FOUND, KNOWN
from ._rows import arms, by_exposure, drawn, mean_of, plain_arms, seeds_note, span

_HEIGHT = 230
_DOCUMENTS = {
    "none": "without a passage",
    "own": "with what it finds itself",
    "retrieved": "with the first passage found",
    "gold": "with the right passage",
    "random": "with a random passage",
}
_AS_IS = {"reading": "raw", "layer": -1, "index": "as-trained"}


def knowledge_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each document, right answers over exposure; None where nothing was asked."""
    own = by_exposure(of(arms(frame), **_AS_IS, metric="p1"))
    documents = [name for name in _DOCUMENTS if name in set(own["document"].astype(str))]
    documents = [name for name in documents if name != "retrieved" or "own" not in documents]
    own = own[own["document"].isin(documents)]
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["document", "exposure", "place"], models, SHARE)
    ends = span(data[data["trained"]], 0.0, 1.0)
    panels = [
        Panel(spec=_chart(of(data, document=name), models, "right answers", ends, "guess"), title=_DOCUMENTS[name])
        for name in documents
    ]
    return ReportFigure(
        id="knowledge-arms",
        question="What does a reader know, from memory and from a passage?",
        answer=_told(data, documents, models),
        words=_known_words(data, documents),
        panels=panels,
        caption=f"{seeds_note(data)} Dotted: a guess among the relation's objects.",
        how_to_read=[
            "Across: trained facts by how often they were asked (1×: rarest), facts that stand in passages alone (held "
            "out) and nowhere (withheld). Up: the share of right answers, in wordings that training does not have. A "
            "panel for each document.",
            "Without a passage, a line shows what weights hold; withheld facts are the control, and must lie at the "
            "guess. It would be surprising if a reader of right passages knew as much by heart as the closed book.",
        ],
        method=KNOWN,
        data=data,
        tables=("knowledge",),
        findings=("retrieval:R-1", "retrieval:R-8", "retrieval:R-19"),
        payload={"apart": True},
    )


def bits_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Stored bits over exposure, as they are and elicited; None without."""
    own = of(arms(frame), layer=-1, index="as-trained", metric="bits", document="none")
    own = by_exposure(own[own["reading"].isin(["raw", "elicited"])])
    own = own[own["facts"] == "trained"]
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["reading", "exposure", "place"], models)
    readings = [name for name in ("raw", "elicited") if name in set(data["reading"].astype(str))]
    ends = span(data[data["trained"]], 0.0)
    titles = {"raw": "as the reader is", "elicited": "after a short training to say it"}
    return ReportFigure(
        id="stored-bits",
        question="How much do the weights store?",
        answer=_stored(data, readings, models),
        words=_stored_words(data, readings),
        panels=[Panel(spec=_chart(of(data, reading=name), models, "bits of a fact", ends, "guess"), title=titles[name])
                for name in readings],
        caption=f"{seeds_note(data)} Dotted: a guess, 0 bits.",
        how_to_read=[
            f"Up: bits of a fact that the weights hold, read without a passage; {_all_bits(frame)}. A reader "
            "that is hardly ever asked without a passage may hold more than it says: the right panel asks it again "
            "after a short training to answer so, tested on other entities.",
            "Only where both panels agree does a lower line say that less is stored. The closed book with null share "
            "is the control: it was asked without a passage as seldom as the others were. It would be surprising if it "
            "stored more than they do.",
        ],
        method=KNOWN,
        data=data,
        tables=("knowledge",),
        findings=("retrieval:R-2", "retrieval:R-3"),
        payload={"apart": True},
    )  # fmt: skip


def _all_bits(frame: pd.DataFrame) -> str:
    """What a fact has that is known for sure: in nats, log p is as many bits less all of them."""
    asked = of(frame, layer=-1, index="as-trained", document="none", reading="raw", facts="trained")
    model = ["objective", "variant", "seed", "trained", "weight"]
    bits, nats = (of(asked, metric=name).groupby(model)["value"].mean() for name in ("bits", "nats"))
    both = pd.concat([bits, nats.abs() / np.log(2)], axis=1, join="inner").sum(axis=1)
    if both.empty:
        return "an object among m has log2 m"
    most = number(float(both.mean()), 2)
    return f"a fact that is known for sure has {most}, the mean of log2 m over relations of m objects"


def conflict_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Memorisation ratio over exposure; None where no document contradicted a fact."""
    own = by_exposure(of(plain_arms(frame), facts="trained", layer=-1, metric="memorisation_ratio"))
    own = own.dropna(subset="value")
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["exposure", "place"], models, SHARE)
    last = data.loc[data["place"].idxmax(), "exposure"]
    told = [(one.label, mean_of(data, series=one.key, exposure=last)) for one in models.present(data)]
    said = [f"{number(100 * value, 0)}% in {label}" for label, value in told if value is not None]
    return ReportFigure(
        id="conflict",
        question="When passage and memory disagree, which one is believed?",
        answer=[f"Of answers that are one or the other, memory's on the most frequent facts: {listed(said)}."],
        panels=[Panel(spec=_chart(data, models, "memorisation ratio", span(data[data["trained"]], 0.0, 1.0), ""))],
        caption=f"{seeds_note(data)} Answers that are neither do not count.",
        how_to_read=[
            "The passage says another object than training did. Up: of the answers that are one of the two, the share "
            "that are the trained one; 1 is pure memory, 0 pure reading.",
            "Untrained readers have no memory: their answers are a coin's. It would be surprising if a line fell with "
            "exposure.",
        ],
        method=FOUND,
        data=data,
        tables=("knowledge_conflict",),
        findings=("retrieval:R-18",),
    )


def _chart(rows: pd.DataFrame, models: ShownModels, title: str, ends: list[float], guess: str) -> dict[str, Any]:
    rows = rows.loc[rows["trained"]]
    series = models.present(rows)
    names = list(dict.fromkeys(rows.sort_values("place")["exposure"]))
    x = alt.X("exposure:N", title=None, sort=names, axis=alt.Axis(labelAngle=0, labelOverlap=False),
              scale=alt.Scale(domain=names, type="point", padding=0.25))  # fmt: skip
    at = {"x": x, "y": alt.Y(**amount("value", title, ends))}
    tooltip = tips("name:N|trained as", "exposure:N|facts", "shown:N|value", "baseline:Q|guess|.3f")
    drawn_lines = lines(rows, at, looks_of(series), size=40, touch=0, tooltip=tooltip)
    found = [("●", one.label, one.color) for one in series]
    base: list[alt.Chart] = []
    if guess and bool(rows["baseline"].notna().any()):
        level = pd.DataFrame([{"value": float(rows["baseline"].mean())}])
        base = [alt.Chart(level).mark_rule(**BASELINE).encode(y=at["y"])]
        found.append(("⋯", guess, "var(--control)"))
    return finished([*base, *drawn_lines, names_above(found)], _HEIGHT)


def _told(data: pd.DataFrame, documents: list[str], models: ShownModels) -> list[str]:
    texts = []
    for document in documents:
        own = of(data, document=document, trained=True)
        trained = own[own["exposure"].str.endswith("×")]
        if trained.empty:
            continue
        most = trained.loc[trained["place"].idxmax(), "exposure"]
        held = [(one.label, mean_of(own, series=one.key, exposure=most)) for one in models.present(own)]
        out = [(one.label, mean_of(own, series=one.key, exposure="held out")) for one in models.present(own)]
        if document == "none":
            said = [f"{number(100 * value, 0)}% in {label}" for label, value in held if value is not None]
            texts.append(f"Without a passage the most frequent facts are answered rightly {listed(said)}.")
        elif document in ("own", "retrieved"):
            said = [f"{number(100 * value, 0)}% in {label}" for label, value in out if value is not None]
            texts.append(f"Of facts that stand in passages alone, {_DOCUMENTS[document]}: {listed(said)}.")
    return texts or ["What is answered with each document is in the picture."]


def _known_words(data: pd.DataFrame, documents: list[str]) -> str:
    """Who answers most by heart, and who with the right passage."""
    own = data[data["trained"] & data["exposure"].str.endswith("×")]
    if own.empty:
        return ""
    most = of(own, exposure=own.loc[own["place"].idxmax(), "exposure"])
    starts = {"none": "the most frequent facts are answered rightly by heart", "gold": "with the right passage"}
    said = [most_and_least(of(most, document=name), start) for name, start in starts.items() if name in documents]
    return sentence("; ".join(filter(None, said)))


def _stored_words(data: pd.DataFrame, readings: list[str]) -> str:
    """Who stores most of the most frequent facts, as it is and elicited."""
    starts = {"raw": "of the most frequent facts the weights tell", "elicited": "after a short training to say it,"}
    said = []
    for name in readings:
        own = of(data, reading=name, trained=True)
        said.append(most_and_least(of(own, exposure=own.loc[own["place"].idxmax(), "exposure"]), starts[name]))
    return sentence("; ".join(filter(None, said)))


def _stored(data: pd.DataFrame, readings: list[str], models: ShownModels) -> list[str]:
    texts = []
    for reading in readings:
        own = of(data, reading=reading, trained=True)
        most = own.loc[own["place"].idxmax(), "exposure"]
        held = [(one.label, mean_of(own, series=one.key, exposure=most)) for one in models.present(own)]
        said = [f"{number(value, 1)} in {label}" for label, value in held if value is not None]
        how = "" if reading == "raw" else ", after a short training to say them"
        texts.append(f"Bits of one of the most frequent facts{how}: {listed(said)}.")
    return texts
