"""Retrieval and answers: hits, the empty passage, an edited index, questions about real text."""

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Panel
from infoflow.report._in_words import Samples, difference_text, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import tips
from infoflow.report.forms._lines import SHARE
from infoflow.results import RETRIEVAL_SCORES
from infoflow.subjects.adaptation.figures._rows import averaged, of

from ..measures import KNOWLEDGE
from ._rows import ANSWERED, FOUND, KNOWN, arms, drawn, mean_of, seeds_note, share_dots

_NOT_LEAKED = "not leaked"
_PANELS = {
    ("trained", "none"): "questions of training, no passage",
    ("trained", "gold"): "questions of training, the right passage",
    ("held out", "none"): "new questions, no passage",
    ("held out", "own"): "new questions, passages it finds itself",
    ("held out", "gold"): "new questions, the right passage",
    ("held out", "random"): "new questions, a random passage",
}
_QUERIES = {"facts": "questions about facts", "language": "sentences of the language"}
_INDEXED = {
    ("changed", "p1_new"): "changed facts: new object",
    ("changed", "p1_old"): "changed facts: old object",
    ("later", "p1_new"): "new entities",
    ("later", "p1"): "new entities",
}


def _scores(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    hits = of(frame, metric="hit", k=1)
    there = set(hits["queries"].astype(str))
    hits = hits[hits["queries"] == next((name for name in ("facts", "all", "held out") if name in there), "")]
    own = hits[hits["system"] == "own"]
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries"], models, SHARE)
    rows = data.assign(label=data["name"])
    trained, title = rows[rows["trained"]], "first passage right"
    tooltip = tips("label:N|trained as", f"shown:N|{title}", "baseline:Q|drawn at random|.3f")
    chart = share_dots(trained, models, f"{title} (share of questions)", tooltip, rows[~rows["trained"]])
    words = hits[(hits["system"] == "bm25") & (hits["variant"] == "")]
    by_words = f" BM25 on the same questions: {number(float(words['value'].mean()), 2)}." if len(words) else ""
    stated = [
        f"{row['name']} {row['shown']}" for row in trained.sort_values("value", ascending=False).to_dict("records")
    ]
    return Drawn(
        data=data,
        panels=[Panel(spec=chart)],
        answer=[f"Questions whose first passage is right: {listed(stated[:6])} (share).{by_words}"],
        caption=f"{seeds_note(data)} Dashed tick: passages drawn at random. Grey cross: before training.",
    )


def _null(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = of(frame, metric="null_prior", system="own", variant="")
    own = own[own["queries"].isin(list(_QUERIES))]
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries"], models, SHARE)
    rows = data.assign(label=data["name"] + ": " + data["queries"].astype(str).map(_QUERIES))
    trained = rows[rows["trained"]].drop(columns="baseline")
    tooltip = tips("label:N", "shown:N|prior")
    chart = share_dots(trained, models, "prior of the empty passage", tooltip, rows[~rows["trained"]])
    return Drawn(
        data=data,
        panels=[Panel(spec=chart)],
        answer=_gaps(own, models),
        caption=f"{seeds_note(data)} Grey cross: before training.",
    )


def _gaps(own: pd.DataFrame, models: ModelSelection) -> list[str]:
    stated = []
    trained = averaged(own[own["trained"]], ["queries"])
    for one in models.present(trained):
        both = [Samples.of(of(trained, series=one.key, queries=name)) for name in ("language", "facts")]
        if all(both):
            gap = difference_text((both[0] - both[1]).estimate(), "higher", "lower")
            stated.append(f"In {one.label}, the prior of the empty passage is {gap} for language than for facts.")
    return stated or ["The prior was measured for only one kind of query."]


def _index(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = of(frame, variant="", reading="raw", weight=-1, layer=-1, trained=True)
    closed = (own["objective"] == "closed-book") & (own["document"] == "none")
    own = own[own["document"].isin(["own", "retrieved"]) | closed]
    places = list(zip(own["facts"].astype(str), own["metric"].astype(str), strict=True))
    first = own["document"].map({"own": 0, "retrieved": 1, "none": 2})  # one document per line
    own = own.assign(label=[_INDEXED.get(place, "") for place in places], first=first)
    own = own[own["label"] != ""].sort_values("first", kind="stable")
    own = own.drop_duplicates(["series", "seed", "index", "label"])
    if not len(edited := own[own["index"] == "edited"]):
        return None
    data = drawn(own, ["index", "label"], models, SHARE)
    rows, before = of(data, index="edited"), of(data, index="as-trained")
    tooltip, panels = tips("label:N", "shown:N|answered so", "baseline:Q|guess|.3f"), []
    for one, part in models.each(rows):
        chart = share_dots(part, models, "share of questions", tooltip, of(before, series=one.key), step=32)
        panels.append(Panel(spec=chart, title=one.label))
    return Drawn(
        data=data,
        panels=panels,
        answer=[_swapped(part, one.label) for one, part in models.each(rows)],
        caption=f"{seeds_note(data)} Nothing is trained further. Grey cross: with the training index; dashed tick: a "
        "guess.",
        payload={"count": len(edited)},
    )


def _swapped(rows: pd.DataFrame, name: str) -> str:
    said = [f"{row['label']} {number(100 * row['value'], 0)}%" for row in rows.to_dict("records")]
    return f"In {name}, with the edited index: {listed(said)}."


def _answers(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = of(arms(frame), metric="em", k=0)
    own = own[own["system"].isin(["none", "own", "gold", "random"])]
    if not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries", "system"], models, SHARE).assign(label=lambda rows: rows["name"])
    domain = (-0.01, min(1.02, 1.15 * float(data["high"].max()) + 0.02))
    tooltip = tips("label:N|trained as", "shown:N|exact match", "baseline:Q|most frequent answer|.3f")
    panels = []
    for (queries, system), title in _PANELS.items():
        rows = of(data, queries=queries, system=system)
        trained, grey = rows[rows["trained"]], rows[~rows["trained"]]
        if len(trained):
            chart = share_dots(trained, models, "exact match", tooltip, grey, domain=domain)
            panels.append(Panel(spec=chart, title=title))
    return Drawn(
        data=data,
        panels=panels,
        answer=[*_text(data, models), *_without_leaks(data, models)],
        caption=f"{seeds_note(data)} Dashed tick: the most frequent right answer, given to all questions. Grey cross: "
        "before training.",
    )


def _text(data: pd.DataFrame, models: ModelSelection) -> list[str]:
    """Each line's accuracy from memory, with its own search, and with the right passage."""
    said = []
    for one in models.present(data[data["trained"]]):
        parts = [
            f"{number(100 * value, 0)}% of {title}"
            for (queries, system), title in _PANELS.items()
            if system != "random"
            and (value := mean_of(data, series=one.key, queries=queries, system=system)) is not None
        ]
        said.append(f"{one.label} answers {listed(parts)}.")
    return said


def _without_leaks(data: pd.DataFrame, models: ModelSelection) -> list[str]:
    """Accuracy on the new questions that training does not contain."""
    by_part = {name: of(data, trained=True, queries=name)["count"] for name in ("held out", _NOT_LEAKED)}
    if any(counts.empty for counts in by_part.values()):
        return []
    every, others = (int(counts.max()) for counts in by_part.values())
    parts = []
    for one in models.present(data[data["trained"]]):
        for system in ("own", "none"):
            values = [mean_of(data, series=one.key, queries=name, system=system) for name in (_NOT_LEAKED, "held out")]
            if None not in values:
                rest, whole = (number(100 * value, 0) for value in values if value is not None)
                parts.append(f"{one.label} {rest}% ({whole}% of all)")
                break
    return [
        f"Training also asks {every - others:,} of the {every:,} new questions. Right answers to the others: "
        f"{listed(parts)}."
    ]


SCORES = DeclaredFigure(
    name="retrieval/scores",
    id="retrieval-scores",
    question="Which retriever finds the right passage?",
    how_to_read=(
        "Each row is a variant. Across: the share of questions whose first passage answers them. Variants with "
        "fixed passages (right or random ones) do not search and have no row.",
        "BM25 finds the entity but cannot choose the passage if the question words the relation differently. It "
        "would be surprising if a retriever were far right of the others and its reader no better.",
    ),
    method=FOUND,
    tables=(RETRIEVAL_SCORES.name,),
    findings=("retrieval:R-7", "retrieval:R-9", "retrieval:R-10", "retrieval:R-14"),
    draw=_scores,
)
NULL = DeclaredFigure(
    name="retrieval/null-passage",
    id="null-passage",
    question="Is the empty passage used where no knowledge is needed?",
    how_to_read=(
        "The retriever also gives the empty passage ∅ a probability, π(∅). No passage helps with a sentence of the "
        "language, so a good retriever gives ∅ a high probability there and a low one for facts.",
        "Before training, there should be no difference. It would be surprising if language were left of facts.",
    ),
    method=FOUND,
    tables=(RETRIEVAL_SCORES.name,),
    findings=("retrieval:R-12",),
    draw=_null,
)
INDEX = DeclaredFigure(
    name="retrieval/index",
    id="index-swap",
    question="Does a different index change the answers?",
    how_to_read=(
        "The edited index gives some facts a new object and adds passages about new entities. Rows: answers with "
        "the new object, answers with the object seen in training, and right answers about new entities.",
        "The closed book reads no index. It is the control: all its answers are memory. It would be surprising "
        "if it knew the new objects.",
    ),
    method=KNOWN,
    tables=(KNOWLEDGE.name,),
    findings=("retrieval:R-5", "retrieval:R-6"),
    payload={"apart": True},
    draw=_index,
)
ANSWERS = DeclaredFigure(
    name="retrieval/answers",
    id="text-answers",
    question="What does a reader of real text answer, from memory and from a passage?",
    how_to_read=(
        "Each row is a variant; each panel is a kind of question with one kind of passage. Across: the share of "
        "questions answered exactly, ignoring articles and punctuation. The number of masks reveals the length "
        "of an answer.",
        "Training questions without a passage show what the weights hold. New questions without a passage are "
        "the control: no training question was about their passages. It would be surprising if a random passage "
        "helped.",
    ),
    method=ANSWERED,
    tables=(RETRIEVAL_SCORES.name,),
    payload={"apart": True},
    draw=_answers,
)
