"""Readers during training: their answers, the terms of their likelihood, and which part lowers the loss."""

from typing import Any, NamedTuple

import pandas as pd

from infoflow.report._curves import band_words, sampled_bands, seed_bands
from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import ends_words, half_by, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import amount, tips
from infoflow.report.forms._lines import named_lines
from infoflow.results import RETRIEVAL_LEARNING
from infoflow.subjects.adaptation.figures._rows import names_of, of
from infoflow.subjects.allocation.measures import ALLOCATION_STEPS

from ..measures import RETRIEVAL_COURSE
from ._rows import COURSE, FOUND, LEARNED, ends_of, plain_arms

_HEIGHT = 210
_POINTS, _FEW_POINTS = 120, 60  # maximum per line
_ANSWERS = (
    ("p1", "held out", "right answers, facts held out", "share of questions"),
    ("p1", "trained", "right answers, trained facts", "share of questions"),
    ("utility", "trained", "retrieval utility, trained facts", "nats"),
    ("log_likelihood", "trained", "log-likelihood, trained facts", "nats"),
)
"""Panels: metric, facts, title, unit."""
_TERMS = {
    "reader_term": ("reader term", "nats"),
    "retriever_term": ("retriever term", "nats"),
    "utility_marginal": ("retrieval utility of all that is found", "nats"),
    "null_prior": ("prior of the empty passage", "probability"),
    "overlap": ("overlap of stale and fresh index", "share"),
}


class _Part(NamedTuple):
    key: str
    label: str
    color: str
    dash: tuple[int, ...]
    components: tuple[str, ...]
    shape: str = "circle"


_PARTS = (
    _Part("retriever", "retriever", "var(--series-6)", (1, 0), ("retriever",)),
    _Part("prior", "what weighs passages", "var(--soft)", (2, 3), ("prior",)),
    _Part("attention", "reader's attention", "var(--heat-1)", (1, 0), ("query", "key", "value", "output")),
    _Part("mlp", "reader's feed-forward", "var(--heat-2)", (9, 3), ("mlp_in", "mlp_out")),
    _Part("embeddings", "reader's embeddings", "var(--ink)", (4, 3), ("embeddings", "positions", "segments")),
    _Part("rest", "reader's norms and output", "var(--control)", (1, 2), ()),  # the remaining loss
)
_LABELS = {part.key: part.label for part in _PARTS}


def _frame(updates: pd.Series, title: str, ends: tuple[float, float]) -> dict[str, Any]:
    x = amount("x", "update", "update", [0.0, 1.02 * float(updates.max())], format="~s", ticks=5)
    return {"x": x, "y": amount("y", "value", title, ends)}


def _thinned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """The rows of about `most` evenly spaced updates, the last one included."""
    updates = sorted(rows["update"].unique())
    return rows[rows["update"].isin([*updates[:: max(1, -(-len(updates) // most))], updates[-1]])]


def _answers(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = plain_arms(frame).dropna(subset="value")
    if own.empty:
        return None
    by = ["series", "facts", "metric", "update"]
    counts = own.groupby(by, sort=False)["count"].mean().reset_index()
    data = names_of(sampled_bands(own, by).merge(counts, on=by), models)
    data = data.sort_values(["series", "update"], kind="stable", ignore_index=True)
    panels = []
    for metric, facts, title, unit in _ANSWERS:
        rows = of(data, metric=metric, facts=facts)
        if len(rows):
            at = _frame(rows["update"], unit, (-0.01, 1.02) if metric == "p1" else ends_of(rows))
            stated = tips("name:N|trained as", "update:Q|update|,", f"value:Q|{title}|.3f")
            how = {"mark": "—", "size": 24, "touch": 90, "tooltip": stated}
            panels.append(Panel(spec=named_lines(rows, at, models.present(rows), _HEIGHT, **how), title=title))
    seeds, count = int(data["seeds"].max()), round(float(data["count"].median()))
    return Drawn(
        data=data,
        panels=panels,
        answer=[_answered(of(data, metric="p1", facts="held out"), models)],
        caption=f"{band_words(seeds, over='facts')}; {count:,} questions per number. Candidates are those of the same "
        "update; the questions use wordings that do not occur in training.",
    )


def _answered(right: pd.DataFrame, models: ModelSelection) -> str:
    """Each variant's final accuracy, and the update at which it had made half of its gain."""
    stated = []
    for one, rows in models.each(right):
        curve = rows.sort_values("update").set_index("update")["value"]
        rise = f" (half of the rise by update {half_by(curve):,})" if curve.iloc[-1] > curve.iloc[0] else ""
        stated.append(f"{one.label} {number(100 * float(curve.iloc[-1]), 0)}%{rise}")
    return f"Right answers about held-out facts at the end: {listed(stated)}."


def _terms(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own, parts = frame[frame["variant"] == ""], []
    for name, (title, unit) in _TERMS.items():
        known = own.dropna(subset=name)
        if len(known):
            means = seed_bands(known, ["series", "update"], name)
            parts.append(_thinned(means, _POINTS).assign(term=title, unit=unit))
    if not parts:
        return None
    data, panels = names_of(pd.concat(parts, ignore_index=True), models), []
    stated = tips("name:N|trained as", "update:Q|update|,", "value:Q|value|.3f")
    for term, rows in data.groupby("term", sort=False):
        at = _frame(rows["update"], str(rows["unit"].iloc[0]), ends_of(rows))
        how = {"mark": "—", "size": 0, "touch": 60, "tooltip": stated}
        panels.append(Panel(spec=named_lines(rows, at, models.present(rows), _HEIGHT, **how), title=str(term)))
    first, answer = of(data, term=data["term"].iloc[0]), []
    for one, rows in models.each(first):
        curve = rows.sort_values("update").set_index("update")["value"]
        ends = ends_words(curve, "nats", 2)
        answer.append(f"In {one.label}, the reader term goes {ends}, half of the way by update {half_by(curve):,}.")
    bands = band_words(int(own["seed"].nunique()), over="")
    caption = f"Training queries that were read with a passage. {bands}."
    return Drawn(data=data, panels=panels, answer=answer, caption=caption)


def _removal(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = of(plain_arms(frame), set="train")
    if own.empty:
        return None
    data = names_of(_removed(own), models)
    series = sorted(models.present(data), key=lambda one: "retriever" not in set(of(data, series=one.key)["part"]))
    at = _frame(data["update"], "nats removed", ends_of(data))
    panels, answer = [], []
    for one in series:
        rows = of(data, series=one.key)
        present = [part for part in _PARTS if part.key in set(rows["part"])]
        stated = tips("shown:N|part", "update:Q||,", "value:Q|nats removed|.3f")
        band = 0.18 if bool((rows["high"] > rows["low"]).any()) else 0.0
        how = {"field": "part", "mark": "—", "size": 0, "band": band, "touch": 60, "tooltip": stated}
        panels.append(Panel(spec=named_lines(rows, at, present, _HEIGHT, **how), title=one.label))
        answer.append(_shares(rows, one.label))
    return Drawn(
        data=data,
        panels=panels,
        answer=answer,
        caption=f"{band_words(int(own['seed'].nunique()), over='')}. All panels share one scale. The loss is computed "
        "on training queries, each with its right passage, further passages by BM25 and the empty passage; "
        "the closed book has only the empty one.",
    )


def _removed(own: pd.DataFrame) -> pd.DataFrame:
    """Loss that each part has removed by each update, as a mean over seeds with its interval; 0 at the start."""
    part = {component: one.key for one in _PARTS for component in one.components}
    rows = own.assign(part=[part.get(str(component), "rest") for component in own["component"]])
    sums = rows.groupby(["series", "seed", "part", "end"], as_index=False)["value"].sum().sort_values("end")
    sums = sums.assign(value=-sums.groupby(["series", "seed", "part"])["value"].cumsum())
    ends = seed_bands(sums, ["series", "part", "end"]).rename(columns={"end": "update"})
    ends = _thinned(ends, _FEW_POINTS)
    start = ends.drop_duplicates(["series", "part"]).assign(update=0, value=0.0, low=0.0, high=0.0)
    found = pd.concat([start, ends], ignore_index=True).sort_values(["series", "update"], kind="stable")
    return found.assign(shown=found["part"].map(_LABELS))


def _shares(rows: pd.DataFrame, name: str) -> str:
    """Each part's share of the fall of the loss, and when the retriever had made half of its contribution."""
    last = rows[rows["update"] == rows["update"].max()].set_index("part")["value"]
    whole = float(last.sum())
    if not whole > 0:
        return f"In {name}, the loss did not fall."
    order = last.sort_values(ascending=False)
    percents = {_LABELS[str(part)]: 100 * float(value) / whole for part, value in order.items()}
    shares = [f"{label} {number(share, 0 if abs(share) >= 1 else 2)}%" for label, share in percents.items()]
    stated = f"In {name}, the loss falls by {number(whole, 2)} nats: {listed(shares)}."
    if not float(last.get("retriever", 0.0)) > 0:
        return stated
    half = half_by(of(rows, part="retriever").set_index("update")["value"])
    return f"{stated} The retriever has made half of its contribution by update {half:,}."


ANSWERS_OVER_UPDATES = DeclaredFigure(
    name="retrieval/course",
    id="retrieval-course",
    question="When do readers learn to answer?",
    how_to_read=(
        "Each mark is an update whose weights were kept. No training question asks about held-out facts, so a "
        "reader that answers them has read the answer. It may have memorised trained facts.",
        "Retrieval utility is how much more likely the passages found make the answer, compared with no passage; "
        "a reader without passages has none. It would be surprising if it rose while right answers about "
        "held-out facts fell.",
    ),
    method=COURSE,
    tables=(RETRIEVAL_COURSE.name,),
    findings=("retrieval:R-13",),
    payload={"apart": True},
    draw=_answers,
)
TERMS = DeclaredFigure(
    name="retrieval/learning",
    id="retrieval-learning",
    question="When does the retriever learn, and when the reader?",
    how_to_read=(
        "log p(y|x) is exactly the reader term minus the retriever term. The reader term rises as the reader "
        "learns to use its passages; the retriever term is how far the posterior over passages lies from the "
        "prior.",
        "Retrieval utility is what passages add to the empty one: at 0 the reader ignores them. Overlap is the "
        "share of a stale index's results that a fresh index finds too. It would be surprising if utility fell "
        "while hits rise.",
    ),
    method=FOUND,
    tables=(RETRIEVAL_LEARNING.name,),
    findings=("retrieval:R-13", "retrieval:R-14"),
    payload={"apart": True},
    draw=_terms,
)
REMOVAL = DeclaredFigure(
    name="retrieval/parts",
    id="retrieval-learned",
    question="Who learns to answer: the retriever or the reader?",
    how_to_read=(
        "Up: how much a part of the model has lowered the loss so far, in nats per masked token; where a line "
        "falls, the part raises the loss. The lines of a panel add up to the fall of the loss.",
        "A learned retriever is frozen during the first updates, so its line begins flat. Its contribution is "
        "measured on fixed candidates; the figures on search show that it finds better ones as it learns. It "
        "would be surprising if it lowered the loss more than the reader.",
    ),
    method=LEARNED,
    tables=(ALLOCATION_STEPS.name,),
    findings=("retrieval:R-24",),
    payload={"apart": True},
    draw=_removal,
)
