"""What is found: hits, the empty passage, learning curves, and what another index changes."""

from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import by_answer
from .._numbers import listed, number, size_text
from .._samples import Samples
from .._shown_models import ShownModels
from ..adaptation._rows import averaged, of
from ..forms._chart import amount, color_of, finished, shape_of, tips
from ..forms._dots import interval_dots
from ..forms._lines import SHARE, lines, looks_of
from ..forms._names import names_above
from ._methods import FOUND, KNOWN
from ._rows import drawn, seeds_note, span

_HEIGHT = 210
_POINTS = 120  # of a learning curve, at most
_TERMS = {
    "reader_term": ("reader term", "nats"),
    "retriever_term": ("retriever term", "nats"),
    "utility_marginal": ("retrieval utility of all that is found", "nats"),
    "null_prior": ("prior of the empty passage", "probability"),
    "overlap": ("overlap of stale and fresh index", "share"),
}


def _queries(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The rows of the first group of queries that there is."""
    there = set(frame["queries"].astype(str))
    return frame[frame["queries"] == next((name for name in names if name in there), "")]


def scores_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """hit@1 of each line's own search; None where nothing was searched."""
    hits = _queries(of(frame, metric="hit", k=1), "facts", "all", "held out")
    own = hits[hits["system"] == "own"]
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries"], models, SHARE)
    trained = data[data["trained"]].assign(label=lambda rows: rows["name"])
    trained = trained.assign(short=[number(value, 2) for value in trained["value"]])
    series = models.present(trained)
    grey = data[~data["trained"]].assign(label=lambda rows: rows["name"])
    spec = interval_dots(
        trained,
        {"color": color_of(series), "shape": shape_of(series)},
        title="first passage right (share of questions)",
        bounds=(0.0, 1.0),
        domain=(-0.01, 1.02),
        tooltip=tips("label:N|trained as", "shown:N|first passage right", "baseline:Q|drawn at random|.3f"),
        step=30,
        grey=grey[grey["label"].isin(trained["label"])],
    )
    words = hits[(hits["system"] == "bm25") & (hits["variant"] == "")]
    beside = f" BM25 on the same questions: {number(float(words['value'].mean()), 2)}." if len(words) else ""
    told = [f"{row['name']} {row['shown']}" for row in trained.sort_values("value", ascending=False).to_dict("records")]
    return ReportFigure(
        id="retrieval-scores",
        question="Who finds the right passage?",
        answer=[f"The first passage is right in {listed(told[:6])} (share of questions).{beside}"],
        panels=[Panel(spec=spec)],
        caption=f"{seeds_note(data)} Dashed tick: passages drawn at random. Grey cross: before training.",
        how_to_read=[
            "A row is a way of training; across, the share of questions whose first passage answers them. Fixed "
            "sources of passages (right ones, random ones) search nothing and have no row.",
            "BM25 finds the entity and cannot choose the passage where questions use other words for the relation. It "
            "would be surprising if a retriever were far right of the others and its reader no better.",
        ],
        method=FOUND,
        data=data,
        tables=("retrieval_scores",),
        findings=("retrieval:R-7", "retrieval:R-9", "retrieval:R-10", "retrieval:R-14"),
    )


def null_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Prior of the empty passage, for facts and for language; None without."""
    own = of(frame, metric="null_prior", system="own", variant="")
    own = own[own["queries"].isin(["facts", "language"])]
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries"], models, SHARE)
    trained, grey = (data[data["trained"] == which] for which in (True, False))
    labels = {"facts": "questions about facts", "language": "sentences of the language"}
    rows = {True: trained, False: grey}
    rows = {key: each.assign(label=[f"{row['name']}: {labels[str(row['queries'])]}" for row in each.to_dict("records")])
            for key, each in rows.items()}  # fmt: skip
    series = models.present(trained)
    spec = interval_dots(
        rows[True].assign(short=[number(value, 2) for value in trained["value"]]).drop(columns="baseline"),
        {"color": color_of(series), "shape": shape_of(series)},
        title="prior of the empty passage",
        bounds=(0.0, 1.0),
        domain=(-0.01, 1.02),
        tooltip=tips("label:N", "shown:N|prior"),
        step=30,
        grey=rows[False][rows[False]["label"].isin(rows[True]["label"])],
    )
    return ReportFigure(
        id="null-passage",
        question="Does the empty passage take what needs no knowledge?",
        answer=_gaps(own, models),
        panels=[Panel(spec=spec)],
        caption=f"{seeds_note(data)} Grey cross: before training.",
        how_to_read=[
            "The retriever gives the empty passage a probability too, π(∅). No passage helps with a sentence of the "
            "language, so a retriever that knows this gives it much there, and little where a fact is asked.",
            "Before training there is no difference to learn from. It would be surprising if language lay left of "
            "facts.",
        ],
        method=FOUND,
        data=data,
        tables=("retrieval_scores",),
        findings=("retrieval:R-12",),
    )


def _gaps(own: pd.DataFrame, models: ShownModels) -> list[str]:
    told = []
    trained = averaged(own[own["trained"]], ["queries"])
    for one in models.present(trained):
        both = [Samples.of(of(trained, series=one.key, queries=name)) for name in ("language", "facts")]
        if all(both):
            gap = (both[0] - both[1]).estimate()
            way = "more" if gap.value >= 0 else "less"
            told.append(f"In {one.label} the empty passage gets {size_text(gap)} {way} for language than for facts.")
    return told or ["The prior was measured for one kind of queries alone."]


def learning_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Panels for the terms of the likelihood over updates; None without."""
    own = frame[frame["variant"] == ""]
    parts = []
    for name, (title, unit) in _TERMS.items():
        known = own.dropna(subset=name)
        if len(known):
            means = known.groupby(["series", "update"], as_index=False, sort=False)[name].mean()
            ends = known.groupby(["series", "update"], as_index=False, sort=False)[name].agg(["min", "max"])
            rows = means.rename(columns={name: "value"}).assign(
                low=ends["min"], high=ends["max"], term=title, unit=unit
            )
            parts.append(_thinned(rows))
    if not parts:
        return None
    labels = {one.key: one.label for one in models.series}
    data = pd.concat(parts, ignore_index=True)
    data = data.assign(name=data["series"].map(labels))
    terms = [title for title, _ in _TERMS.values() if title in set(data["term"])]
    seeds = int(own["seed"].nunique())
    return ReportFigure(
        id="retrieval-learning",
        question="When does the retriever learn, and when the reader?",
        answer=[_when(of(data, term=terms[0]), one.label, one.key) for one in models.present(of(data, term=terms[0]))],
        panels=[Panel(spec=_curve(of(data, term=term), models), title=term) for term in terms],
        caption=f"Of the training queries that were read with a passage. {seeds} seed{'s' if seeds > 1 else ''}"
        f"{', bands from the lowest to the highest' if seeds > 1 else ''}; no interval over facts is known.",
        how_to_read=[
            "log p(y|x) is the reader term less the retriever term, exactly. The reader term rises as the reader "
            "learns to use what it is given; the retriever term is how far the posterior over passages lies from the "
            "prior.",
            "Retrieval utility is what passages add to the empty one: at 0 the reader ignores them. Overlap says how "
            "much of a stale index's findings a fresh one repeats. It would be surprising if utility fell while hits "
            "rise.",
        ],
        method=FOUND,
        data=data,
        tables=("retrieval_learning",),
        findings=("retrieval:R-13", "retrieval:R-14"),
        payload={"apart": True},
    )


def _thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """At most so many updates, evenly chosen."""
    updates = sorted(rows["update"].unique())
    step = max(1, -(-len(updates) // _POINTS))
    return rows[rows["update"].isin([*updates[::step], updates[-1]])]


def _curve(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    series = models.present(rows)
    ends = [0.0, 1.02 * float(rows["update"].max())]
    at = {
        "x": alt.X(**amount("update", "update", ends, format="~s", ticks=5)),
        "y": alt.Y(**amount("value", str(rows["unit"].iloc[0]), span(rows))),
    }
    tooltip = tips("name:N|trained as", "update:Q|update|,", "value:Q|value|.3f")
    found = lines(rows, at, looks_of(series), size=0, touch=60, tooltip=tooltip)
    return finished([*found, names_above([("—", one.label, one.color) for one in series])], _HEIGHT)


def _when(rows: pd.DataFrame, name: str, key: str) -> str:
    own = of(rows, series=key).sort_values("update")
    first, last = float(own["value"].iloc[0]), float(own["value"].iloc[-1])
    past = own[own["value"] >= (first + last) / 2] if last >= first else own[own["value"] <= (first + last) / 2]
    half = int(past["update"].iloc[0])
    ends = f"from {number(first, 2)} to {number(last, 2)} nats"
    return f"In {name} the reader term goes {ends}, half of it by update {half:,}."


def index_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Answers with the edited index, beside those with the one of training; None where no index was edited."""
    own = of(frame, variant="", reading="raw", weight=-1, layer=-1, trained=True)
    own = own[
        own["document"].isin(["own", "retrieved"]) | ((own["objective"] == "closed-book") & (own["document"] == "none"))
    ]
    asked = {
        ("changed", "p1_new"): "changed facts: new object",
        ("changed", "p1_old"): "changed facts: old object",
        ("later", "p1_new"): "new entities",
        ("later", "p1"): "new entities",
    }
    places = list(zip(own["facts"].astype(str), own["metric"].astype(str), strict=True))
    own = own.assign(label=[asked.get(place, "") for place in places])
    first = own["document"].map({"own": 0, "retrieved": 1, "none": 2})  # one document for each line
    own = own.assign(first=first)[own["label"] != ""].sort_values("first", kind="stable")
    own = own.drop_duplicates(["series", "seed", "index", "label"])
    if not len(edited := own[own["index"] == "edited"]):
        return None
    data = drawn(own, ["index", "label"], models, SHARE)
    rows, before = of(data, index="edited"), of(data, index="as-trained")
    series = models.present(rows)
    panels = []
    for one in series:
        part = of(rows, series=one.key)
        spec = interval_dots(
            part.assign(short=[number(value, 2) for value in part["value"]]),
            {"color": color_of(series), "shape": shape_of(series)},
            title="share of questions",
            bounds=(0.0, 1.0),
            domain=(-0.01, 1.02),
            tooltip=tips("label:N", "shown:N|answered so", "baseline:Q|guess|.3f"),
            step=32,
            grey=of(before, series=one.key),
        )
        panels.append(Panel(spec=spec, title=one.label))
    return ReportFigure(
        id="index-swap",
        question="Does another index change the answers?",
        words=by_answer({one.label: _follows(of(rows, series=one.key)) for one in series}, "with the edited index, "),
        answer=[_swapped(of(rows, series=one.key), one.label) for one in series],
        panels=panels,
        caption=f"{seeds_note(data)} Nothing is trained. Grey cross: with the index of training; dashed tick: a guess.",
        how_to_read=[
            "In the edited index some facts have another object, and passages about new entities were added. Rows: "
            "answers with the new object, with the object that training had, and answers about new entities.",
            "The closed book reads no index: it is the control, and what it answers is memory. It would be surprising "
            "if it knew the new objects.",
        ],
        method=KNOWN,
        data=data,
        tables=("knowledge",),
        findings=("retrieval:R-5", "retrieval:R-6"),
        payload={"apart": True, "count": len(edited)},
    )


def _follows(rows: pd.DataFrame) -> str:
    """Whether the object of the edited index is given more often than that of training."""
    own = rows.set_index("label")
    new, old = (f"changed facts: {which} object" for which in ("new", "old"))
    if not {new, old} <= set(own.index):
        return ""
    if own.loc[new, "low"] > own.loc[old, "high"]:
        return "changed facts are answered as the index says"
    if own.loc[old, "low"] > own.loc[new, "high"]:
        return "changed facts are answered as training said"
    return "neither answer to changed facts is clearly more frequent"


def _swapped(rows: pd.DataFrame, name: str) -> str:
    said = [f"{row['label']} {number(100 * row['value'], 0)}%" for row in rows.to_dict("records")]
    return f"In {name}, with the edited index: {listed(said)}."
