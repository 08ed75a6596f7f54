"""Single questions: the retrieved passages, their probabilities, and what each layer would answer."""

from collections import Counter
from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._numbers import number
from infoflow.report._shown_models import ShownModels

from ..measures import RETRIEVAL_EXAMPLES
from ._methods import FOUND

_MOST = 24  # cards: one question to one reader each
_LETTERS = 260  # of a text


def _examples(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """One card per question; None without any."""
    own = frame[frame["trained"]]
    own = own[own["seed"] == own.groupby("series")["seed"].transform("min")] if len(own) else own
    if own.empty:
        return None
    labels = {one.key: one.label for one in models.series}
    asked = [rows[rows["series"] == one] for rows in _questions(own) for one in rows["series"].unique()]
    cards = [_card(rows, labels.get(str(rows["series"].iloc[0]), "")) for rows in asked][:_MOST]
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
    """As many questions as fit with all readers, the same for each reader, alternating between kinds of facts."""
    room = max(1, _MOST // len(own["series"].unique()))
    by_question = [rows for _, rows in own.groupby("question", sort=False)]
    seen: Counter[str] = Counter()
    turns = []
    for rows in by_question:
        kind = str(rows["facts"].iloc[0])
        turns.append(seen[kind])
        seen[kind] += 1
    order = sorted(range(len(by_question)), key=lambda place: turns[place])
    return [by_question[place] for place in order[:room]]


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
