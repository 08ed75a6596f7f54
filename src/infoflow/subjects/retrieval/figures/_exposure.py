"""Lines over exposure: answers with each document, stored bits, and whether a reader follows memory or passage."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import BASELINE, amount, tips
from infoflow.report.forms._lines import SHARE, level, named_lines
from infoflow.report.forms._marks import channel
from infoflow.subjects.adaptation.figures._rows import of

from ..measures import KNOWLEDGE, KNOWLEDGE_CONFLICT
from ._rows import FOUND, KNOWN, arms, by_exposure, drawn, ends_of, mean_of, percents, plain_arms, seeds_note

_HEIGHT = 230
_DOCUMENTS = {
    "none": "without a passage",
    "own": "with passages it finds",
    "retrieved": "with the first passage found",
    "gold": "with the right passage",
    "random": "with a random passage",
}
_READINGS = {"raw": "before further training", "elicited": "after a short training to state facts"}
_AS_IS = {"layer": -1, "index": "as-trained"}


def _knowledge(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = by_exposure(of(arms(frame), **_AS_IS, reading="raw", metric="p1"))
    documents = [name for name in _DOCUMENTS if name in set(own["document"].astype(str))]
    documents = [name for name in documents if name != "retrieved" or "own" not in documents]
    own = own[own["document"].isin(documents)]
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["document", "exposure", "place"], models, SHARE)
    titles = {name: _DOCUMENTS[name] for name in documents}
    return Drawn(
        data=data,
        panels=_panels(data, models, "document", titles, "right answers", ends_of(data[data["trained"]], 0.0, 1.0)),
        answer=_known(data, documents, models),
        caption=f"{seeds_note(data)} Dotted: a guess among the relation's objects.",
    )


def _bits(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = by_exposure(of(arms(frame), **_AS_IS, metric="bits", document="none", facts="trained"))
    own = own[own["reading"].isin(list(_READINGS))]
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["reading", "exposure", "place"], models)
    titles = {name: title for name, title in _READINGS.items() if name in set(data["reading"].astype(str))}
    return Drawn(
        data=data,
        panels=_panels(data, models, "reading", titles, "bits of a fact", ends_of(data[data["trained"]], 0.0)),
        answer=_stored(data, list(titles), models),
        caption=f"{seeds_note(data)} Dotted: a guess, 0 bits.",
        facts={"all": _all_bits(frame)},
    )


def _all_bits(frame: pd.DataFrame) -> str:
    """Clause on the bits of a fact known with certainty; log p equals the stored bits minus these."""
    questions = of(frame, **_AS_IS, document="none", reading="raw", facts="trained")
    model = ["objective", "variant", "seed", "trained", "weight"]
    bits, nats = (of(questions, metric=name).groupby(model)["value"].mean() for name in ("bits", "nats"))
    both = pd.concat([bits, nats.abs() / np.log(2)], axis=1, join="inner").sum(axis=1)
    if both.empty:
        return "a fact known for certain has log2 m, with m possible objects"
    most = number(float(both.mean()), 2)
    return f"a fact known for certain has {most}, the mean of log2 m over relations with m objects"


def _conflict(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = by_exposure(of(plain_arms(frame), facts="trained", layer=-1, metric="memorisation_ratio"))
    own = own.dropna(subset="value")
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["exposure", "place"], models, SHARE)
    said = percents(data, models, exposure=data.loc[data["place"].idxmax(), "exposure"])
    ends = ends_of(data[data["trained"]], 0.0, 1.0)
    return Drawn(
        data=data,
        panels=[Panel(spec=_chart(data, models, "memorisation ratio", ends, guess=False))],
        answer=[f"Share from memory among answers from memory or passage, on the most frequent facts: {said}."],
        caption=f"{seeds_note(data)} Other answers are not counted.",
    )


def _panels(
    data: pd.DataFrame,
    models: ModelSelection,
    column: str,
    titles: dict[str, str],
    unit: str,
    ends: tuple[float, float],
) -> list[Panel]:
    return [
        Panel(spec=_chart(of(data, **{column: name}), models, unit, ends), title=title)
        for name, title in titles.items()
    ]


def _chart(
    rows: pd.DataFrame, models: ModelSelection, title: str, ends: tuple[float, float], guess: bool = True
) -> dict[str, Any]:
    """Lines over exposure, with the level of a guess if known."""
    rows = rows.loc[rows["trained"]]
    names = list(dict.fromkeys(rows.sort_values("place")["exposure"]))
    axis = {"labelAngle": 0, "labelOverlap": False}
    scale = {"domain": names, "type": "point", "padding": 0.25}
    x = channel("x", "exposure:N", title=None, sort=names, axis=axis, scale=scale)
    at = {"x": x, "y": amount("y", "value", title, ends)}
    stated = tips("name:N|trained as", "exposure:N|facts", "shown:N|value", "baseline:Q|guess|.3f")
    how: dict[str, Any] = {"size": 40, "touch": 0, "tooltip": stated}
    if guess and bool(rows["baseline"].notna().any()):
        how["beneath"] = [level(float(rows["baseline"].mean()), BASELINE, y=at["y"])]
        how["names"] = [("⋯", "guess", "var(--control)")]
    return named_lines(rows, at, models.present(rows), _HEIGHT, **how)


def _known(data: pd.DataFrame, documents: list[str], models: ModelSelection) -> list[str]:
    texts = []
    for document in documents:
        own = of(data, document=document, trained=True)
        trained = own[own["exposure"].str.endswith("×")]
        if len(trained) and document == "none":
            said = percents(own, models, exposure=trained.loc[trained["place"].idxmax(), "exposure"])
            texts.append(f"Right answers on the most frequent facts without a passage: {said}.")
        elif len(trained) and document in ("own", "retrieved"):
            said = percents(own, models, exposure="held out")
            texts.append(f"Right answers on held-out facts {_DOCUMENTS[document]}: {said}.")
    return texts or ["The picture shows the answers with each document."]


def _stored(data: pd.DataFrame, readings: list[str], models: ModelSelection) -> list[str]:
    texts = []
    for reading in readings:
        own = of(data, reading=reading, trained=True)
        most = own.loc[own["place"].idxmax(), "exposure"]
        held = [(one.label, mean_of(own, series=one.key, exposure=most)) for one in models.present(own)]
        said = [f"{number(value, 1)} in {label}" for label, value in held if value is not None]
        how = "" if reading == "raw" else ", after a short training to state them"
        texts.append(f"Bits stored per fact, on the most frequent facts{how}: {listed(said)}.")
    return texts


KNOWLEDGE_FIGURE = DeclaredFigure(
    name="retrieval/knowledge",
    id="knowledge-arms",
    question="What does a reader know, from memory and from a passage?",
    how_to_read=(
        "Across: trained facts by how often they were asked (1×: rarest), held-out facts (in passages only) and "
        "withheld facts (nowhere). Up: the share of right answers, in wordings that do not occur in training. "
        "One panel per document.",
        "Without a passage, a line shows what the weights hold. Withheld facts are the control and must lie at "
        "the guess. It would be surprising if a reader of right passages had memorised as much as the closed "
        "book.",
    ),
    method=KNOWN,
    tables=(KNOWLEDGE.name,),
    findings=("retrieval:R-1", "retrieval:R-8", "retrieval:R-19"),
    payload={"apart": True},
    draw=_knowledge,
)
BITS = DeclaredFigure(
    name="retrieval/bits",
    id="stored-bits",
    question="How much do the weights store?",
    how_to_read=(
        "Up: how many bits of a fact the weights hold, read without a passage; {all}. A reader that is rarely "
        "asked without a passage may hold more than it shows, so the right panel asks it again after a short "
        "training on such questions, tested on other entities.",
        "A lower line means that less is stored only if both panels agree. The closed book with the null share "
        "is the control: it was asked without a passage as rarely as the others. It would be surprising if it "
        "stored more than they do.",
    ),
    method=KNOWN,
    tables=(KNOWLEDGE.name,),
    findings=("retrieval:R-2", "retrieval:R-3"),
    payload={"apart": True},
    draw=_bits,
)
CONFLICT = DeclaredFigure(
    name="retrieval/conflict",
    id="conflict",
    question="When passage and memory disagree, which one wins?",
    how_to_read=(
        "The passage names a different object than training did. Up: among answers with one of these two "
        "objects, the share with the trained one; 1 is pure memory, 0 pure reading.",
        "Untrained readers have no memory: their answers are a coin toss. It would be surprising if a line fell "
        "with exposure.",
    ),
    method=FOUND,
    tables=(KNOWLEDGE_CONFLICT.name,),
    findings=("retrieval:R-18",),
    draw=_conflict,
)
