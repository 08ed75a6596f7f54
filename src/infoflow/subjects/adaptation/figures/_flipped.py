"""Examples that became right or wrong: the tuned model's answers and those without tuning or without pretraining."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.report._figure import ReportFigure
from infoflow.report._in_words import number
from infoflow.report._model_selection import ModelSelection

from ..measures import TASK_ANSWERS
from ._rows import FROZEN, FULL, METHODS, SCORES, main_method, most_examples, plain, way_of

_MOST = 24  # maximum number of examples
_LETTERS = 220  # maximum characters of a text
_KEYS = ["series", "task", "shape", "example", "text", "wanted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """The control whose answers are compared with those of the tuned model."""

    key: str
    head: str  # heading of the column with its answers
    name: str  # its name in a sentence
    question: str
    caption: str
    how_to_read: tuple[str, str]


BESIDE = (
    Pair(
        key="frozen",
        head="frozen said",
        name="frozen features",
        question="Which examples became right or wrong by tuning?",
        caption="a head on frozen features of the pretrained model",
        how_to_read=(
            "what a head on frozen features of the pretrained model answers",
            "Frozen features are the control: they show what pretraining alone achieves. Where the tuned model is "
            "wrong and frozen features are right, tuning lost something.",
        ),
    ),
    Pair(
        key="untrained",
        head="from scratch said",
        name="the same model from random weights",
        question="Which examples does the model get right because it was pretrained?",
        caption="the same model tuned from random weights, since there are no frozen features",
        how_to_read=(
            "what the same model tuned from random weights answers",
            "The model from random weights is the control: it shows what the labels alone teach. Where it is right and "
            "the pretrained model is wrong, pretraining did not help.",
        ),
    ),
    Pair(
        key="guess",
        head="guess",
        name="the most frequent answer",
        question="Which examples does the tuned model get right that a guess gets wrong?",
        caption="the most frequent right answer of these examples, since there are neither frozen features nor a model "
        "from random weights",
        how_to_read=(
            "the most frequent right answer",
            "The most frequent answer is the control: it needs no model. Where it is right and the tuned model is "
            "wrong, reading the example did not help.",
        ),
    ),
)
"""In order of preference: the figure shows the first one that has answers."""


def flipped_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Table of examples that exactly one of the tuned model and its control gets right; None if there are none."""
    both, compared = _both(frame)
    flipped = both[both["right_tuned"] != both["right_beside"]]
    if flipped.empty:
        return None
    shown = _some_of_each(flipped)
    labels = {one.key: one.label for one in models.series}
    rows = [
        {
            "model": labels.get(row["series"], ""),
            "task": str(row["task"]),
            **_text(row),
            "gained": bool(row["right_tuned"]),
        }
        for row in shown.to_dict("records")
    ]
    stated, control = compared.how_to_read
    return ReportFigure(
        id="tuned-flipped",
        question=compared.question,
        answer=[_sentence(both, compared, way_of(frame))],
        panels=[],
        caption=f"{len(rows)} of {len(flipped):,} examples that one gets right and the other wrong, some from each "
        "task, and from as many models as fit; one seed of pretraining and of tuning. Compared with the tuned model: "
        f"{compared.caption}. For tags, only those that differ are shown. They are illustrations, not evidence.",
        how_to_read=[
            f"Each row is a test example: its text, the right answer, {stated}, and what the tuned model answers "
            f"({way_of(frame)}).",
            control,
        ],
        method=SCORES,
        data=shown[["series", "task", "example", "text", "wanted", "said_beside", "said_tuned"]].rename(
            columns={"said_beside": f"said_{compared.key}"}
        ),
        tables=(TASK_ANSWERS.name,),
        template="flipped.html.jinja",
        payload={"rows": rows, "beside": compared.head},
    )


def _both(frame: pd.DataFrame) -> tuple[pd.DataFrame, Pair]:
    """Examples answered by the tuned model and by the first control of `BESIDE` that has answers, and this control."""
    tuned = _answers(plain(frame), trained=True)
    answers = {"untrained": _answers(plain(frame), trained=False), "guess": _guessed(tuned)}
    if main_method(frame) != FROZEN:
        answers["frozen"] = _answers(plain(frame, FROZEN), trained=True)
    pairs = [
        (tuned.merge(answers[one.key], on=_KEYS, suffixes=("_tuned", "_beside")), one)
        for one in BESIDE
        if one.key in answers
    ]
    return next((pair for pair in pairs if len(pair[0])), pairs[-1])


def _answers(own: pd.DataFrame, *, trained: bool) -> pd.DataFrame:
    """The answers at the largest number of labelled examples, from each line's first seeds."""
    most = most_examples(own)
    kept = (most["trained"] == trained) & (most["shape"] != "regression")  # a number is neither right nor wrong
    first = pd.DataFrame(most[kept])
    for column in ("seed", "tuning_seed"):
        if len(first):
            least = first.groupby(["series", "task"])[column].transform("min")
            first = pd.DataFrame(first[first[column] == least])
    return first.drop_duplicates(["series", "task", "example"])[[*_KEYS, "said", "right"]]


def _guessed(tuned: pd.DataFrame) -> pd.DataFrame:
    """The rows if every answer were the most frequent correct one; only for classification tasks."""
    own = tuned[tuned["shape"] == "classification"]
    if own.empty:
        return own
    said = own.groupby(["series", "task"])["wanted"].transform(lambda wanted: wanted.mode().iloc[0])
    return own.assign(said=said, right=said == own["wanted"])


def _some_of_each(flipped: pd.DataFrame) -> pd.DataFrame:
    """For each task, as many gained as lost examples where possible; no line gets a second one before all have one."""
    kinds = flipped.groupby(["task", "right_tuned"], sort=False)
    each = max(1, _MOST // kinds.ngroups)
    place = flipped.groupby(["task", "right_tuned", "series"], sort=False).cumcount()
    ordered = flipped.assign(place=place).sort_values("place", kind="stable")
    parts = [
        own[own["right_tuned"] == gained].head(each).sort_index()
        for _, own in ordered.groupby("task", sort=False)
        for gained in (True, False)
    ]
    return pd.concat(parts).head(_MOST).drop(columns="place")


def _text(row: dict[Hashable, Any]) -> dict[str, str]:
    """The text and the answers; for complete taggings, only the words whose tags differ."""
    words = str(row["text"]).split()
    answers = {"wanted": str(row["wanted"]), "beside": str(row["said_beside"]), "tuned": str(row["said_tuned"])}
    tags = {name: text.split() for name, text in answers.items()}
    if row["shape"] == "tagging" and {len(one) for one in tags.values()} == {len(words)}:
        places = [at for at in range(len(words)) if tags["beside"][at] != tags["tuned"][at]]
        answers = {name: " · ".join(f"{words[at]}: {one[at]}" for at in places) for name, one in tags.items()}
    return {name: _short(text) for name, text in {"text": str(row["text"]), **answers}.items()}


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS].rstrip()} …"


def _sentence(both: pd.DataFrame, compared: Pair, way: str) -> str:
    gained = int((both["right_tuned"] & ~both["right_beside"]).sum())
    lost = int((both["right_beside"] & ~both["right_tuned"]).sum())
    share = number(100 * (gained + lost) / len(both), 0)
    tuning = f"tuning {way}" if way == METHODS[FULL] else f"tuning ({way})"
    if compared.key == "frozen":
        return (
            f"Of {len(both):,} examples that both answered, {tuning} got {gained:,} right that frozen features got "
            f"wrong, and {lost:,} wrong that they got right ({share}% differ)."
        )
    return (
        f"Of {len(both):,} examples, the tuned model gets {gained:,} right that {compared.name} gets wrong, and "
        f"{lost:,} wrong that it gets right ({share}% differ)."
    )
