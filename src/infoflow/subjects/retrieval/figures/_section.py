"""The report's section on retrieval, and the cards of single questions."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._figure import DeclaredFigure, Drawn, Section, names_of
from infoflow.report._in_words import number
from infoflow.report._model_selection import ModelSelection
from infoflow.report._model_tables import ModelTables
from infoflow.results import RETRIEVAL_LEARNING, RETRIEVAL_SCORES
from infoflow.subjects.adaptation.figures._rows import of
from infoflow.subjects.allocation.measures import ALLOCATION_STEPS

from ..measures import KNOWLEDGE, RETRIEVAL_COURSE, RETRIEVAL_EXAMPLES
from ._course import ANSWERS_OVER_UPDATES, REMOVAL, TERMS
from ._depth import DEPTH, MEMORY
from ._exposure import BITS, CONFLICT, KNOWLEDGE_FIGURE
from ._flow import ABLATION, HEADS, KNOCK_OUT
from ._found import ANSWERS, INDEX, NULL, SCORES
from ._rows import FOUND, every_exposure, of_readers, plain_arms

_MOST = 24  # cards, each with one question to one reader
_LETTERS = 260  # maximum letters of a text


def _examples(frame: pd.DataFrame, models: ModelSelection) -> Drawn | None:
    own = frame[frame["trained"]]
    own = own[own["seed"] == own.groupby("series")["seed"].transform("min")] if len(own) else own
    if own.empty:
        return None
    labels = {one.key: one.label for one in models.series}
    examples = [rows[rows["series"] == one] for rows in _questions(own) for one in rows["series"].unique()]
    cards = [_card(rows, labels.get(str(rows["series"].iloc[0]), "")) for rows in examples][:_MOST]
    questions = len({card["question"] for card in cards})
    right = sum(bool(card["right"]) for card in cards)
    return Drawn(
        data=own[["series", "question", "rank", "prior", "posterior", "layer", "object", "probability", "answer"]],
        panels=[],
        answer=[f"With the most likely passage, the answer is right in {right} of {len(cards)} cards."],
        caption=f"{questions} question{'s' if questions > 1 else ''} for each reader of one seed, chosen before "
        "anything was measured. They are illustrations, not evidence.",
        payload={"cards": cards},
    )


def _questions(own: pd.DataFrame) -> list[pd.DataFrame]:
    """The questions to show: as many as fit, the same for each reader, alternating between kinds of facts."""
    room = max(1, _MOST // len(own["series"].unique()))
    unique = own.drop_duplicates("question")
    turns = unique.assign(turn=unique.groupby("facts").cumcount()).sort_values("turn", kind="stable")
    return [own[own["question"] == question] for question in turns["question"][:room]]


def _card(rows: pd.DataFrame, label: str) -> dict[str, Any]:
    first = rows.iloc[0]
    answer = str(first["answer"])
    passages = []
    for _, own in rows.groupby("rank", sort=True):
        best = own.sort_values("place", kind="stable").drop_duplicates("layer").sort_values("layer")
        one = own.iloc[0]
        passages.append(
            {
                "text": _short(str(one["passage"])) or "∅",
                "gold": bool(one["gold"]),
                "prior": number(float(one["prior"]), 2),
                "posterior": number(float(one["posterior"]), 2),
                "share": f"{100 * float(one['prior']):.0f}%",
                "posterior_share": f"{100 * float(one['posterior']):.0f}%",
                "layers": [
                    {
                        "layer": int(row["layer"]),
                        "object": _short(str(row["object"]), 40),
                        "probability": number(float(row["probability"]), 2),
                        "right": str(row["object"]) == answer,
                    }
                    for row in best.to_dict("records")
                ],
            }
        )
    likeliest = max(passages, key=lambda one: float(one["share"].rstrip("%")))
    return {
        "model": label,
        "question": _short(str(first["question"])),
        "answer": _short(answer, 40),
        "facts": str(first["facts"]),
        "passages": passages,
        "layers": [one["layer"] for one in passages[0]["layers"]],
        "right": likeliest["layers"][-1]["right"],
    }


def _short(text: str, most: int = _LETTERS) -> str:
    return text if len(text) <= most else f"{text[:most].rstrip()} …"


EXAMPLES = DeclaredFigure(
    name="retrieval/examples",
    id="retrieval-examples",
    question="What does a reader see, and what would each layer predict?",
    how_to_read=(
        "Each card is one question to one reader. Its rows are the passages that the reader finds, including the "
        "empty one, ∅. π is the retriever's probability of each passage before the answer is known, ρ after.",
        "On the right: what the logit lens reads at the mask from each state, from the embeddings to the top. It "
        "shows the most likely object and its probability; ✓ marks the right one.",
    ),
    method=FOUND,
    tables=(RETRIEVAL_EXAMPLES.name,),
    template="retrieval_examples.html.jinja",
    draw=_examples,
)


# The section on retrieval.

_FIGURES = (
    KNOWLEDGE_FIGURE, BITS, DEPTH, MEMORY, KNOCK_OUT, HEADS, ABLATION, CONFLICT, INDEX, ANSWERS, SCORES, NULL, TERMS,
    ANSWERS_OVER_UPDATES, REMOVAL, EXAMPLES,
)  # fmt: skip
_TABLES = tuple(dict.fromkeys(figure.tables[0] for figure in _FIGURES))
RETRIEVAL = Section(
    id="retrieval",
    title="Does a model that can look facts up still store them in its layers?",
    lead="Readers that start from the same weights and get the same questions differ in one thing: which passage "
    "they may read. What do their weights store, which passages do they find, at which depth does evidence "
    "enter, and which heads carry it?",
    names=names_of(_FIGURES),
)
_OVER_TRAINING, _STEPS = (RETRIEVAL_LEARNING.name, RETRIEVAL_COURSE.name), ALLOCATION_STEPS.name


def retrieval_section(tables: ModelTables) -> Section | None:
    """The section, or None if no reader was trained with passages."""
    frames = tables.some(name for name in _TABLES if name not in _OVER_TRAINING)
    if _STEPS in frames:  # the section on learning covers models without passages
        frames[_STEPS] = of_readers(frames[_STEPS])
    over = {name: tables.over_training(name) for name in _OVER_TRAINING}
    frames |= {name: frame for name, frame in over.items() if frame is not None}
    known = [figure for figure in _FIGURES if figure.tables[0] in frames]
    figures = [figure.of(frames[figure.tables[0]], tables.models) for figure in known]
    shown = [frame for name, frame in frames.items() if name not in _OVER_TRAINING and len(frame)]
    lead = f"{RETRIEVAL.lead} {_first_reader(frames)}".rstrip()
    return replace(RETRIEVAL, lead=lead).drawn_with(figures, tables.models, shown or list(frames.values()))


def _first_reader(frames: Mapping[str, pd.DataFrame]) -> str:
    """How long readers were pretrained to read, and how well they then read this world; "" if they were not."""
    scores = frames.get(RETRIEVAL_SCORES.name)
    if scores is None or (stated := scores[scores["metric"] == "read_updates"]).empty:
        return ""
    before = f"learned to read right passages of another world in {number(stated['value'].max(), 0)} updates"
    right, which = _right(frames.get(KNOWLEDGE.name)), "of this world's held-out questions with the right passage"
    reads = "" if right is None else f" and then answered {number(right, 2)} {which}"
    return f"Before this training, their initial reader {before}{reads}; “untrained” means this reader here."


def _right(knowledge: pd.DataFrame | None) -> float | None:
    """Accuracy before training on held-out facts, with the right passage."""
    if knowledge is None:
        return None
    own = every_exposure(plain_arms(knowledge[~knowledge["trained"]]))
    own = of(own, facts="held out", document="gold", reading="raw", index="as-trained", layer=-1, metric="p1")
    return float(own["value"].mean()) if len(own) else None
