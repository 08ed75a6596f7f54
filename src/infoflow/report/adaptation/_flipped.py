"""Examples that changed sides: what frozen features say, and what the tuned model says."""

from collections.abc import Hashable
from typing import Any

import pandas as pd

from .._figure import ReportFigure
from .._numbers import number
from .._shown_models import ShownModels
from ._methods import SCORES
from ._rows import FROZEN, FULL, most_examples, plain

_MOST = 24  # examples in all
_LETTERS = 220  # of a text


def flipped_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A table of examples that were right or wrong with frozen features and are the other after tuning, or None."""
    both = _both_ways(frame)
    if both.empty:
        return None
    flipped = both[both["right_full"] != both["right_frozen"]]
    if flipped.empty:
        return None
    shown = _some_of_each(flipped)
    labels = {one.key: one.label for one in models.series}
    rows = [
        {
            "model": labels.get(row["series"], ""),
            "task": str(row["task"]),
            **_told(row),
            "gained": bool(row["right_full"]),
        }
        for row in shown.to_dict("records")
    ]
    return ReportFigure(
        id="tuned-flipped",
        question="Which examples changed sides?",
        answer=[_sentence(both)],
        panels=[],
        caption=f"{len(rows)} of {len(flipped):,} examples that changed sides, some of each task, and of as many "
        "models as there is room for; one seed of pretraining and of tuning. Of tags those that the two tell "
        "differently. They illustrate, and prove nothing.",
        how_to_read=[
            "Each row is a test example: its text, the right answer, what a head on frozen features of the pretrained "
            "model answers, and what the model answers once all its weights were tuned.",
            "Frozen features are the control: they say what pretraining alone made of the example. Where tuning is "
            "wrong and they were right, something was lost.",
        ],
        method=SCORES,
        data=shown[["series", "task", "example", "text", "wanted", "said_frozen", "said_full"]],
        tables=("task_answers",),
        template="flipped.html.jinja",
        payload={"rows": rows},
    )


def _both_ways(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each example that both ways have answered, of each line's first seeds."""
    parts = []
    for method in (FULL, FROZEN):
        own = most_examples(plain(frame, method))
        own = own[own["trained"] & (own["shape"] != "regression")]  # a number is neither right nor wrong
        for column in ("seed", "tuning_seed"):
            own = own[own[column] == own.groupby(["series", "task"])[column].transform("min")] if len(own) else own
        parts.append(own.drop_duplicates(["series", "task", "example"]))
    keys = ["series", "task", "shape", "example", "text", "wanted"]
    columns = [*keys, "said", "right"]
    return parts[0][columns].merge(parts[1][columns], on=keys, suffixes=("_full", "_frozen"))


def _some_of_each(flipped: pd.DataFrame) -> pd.DataFrame:
    """Of each task as many that became right as wrong, where there are, and of each line one before a second one."""
    kinds = flipped.groupby(["task", "right_full"], sort=False)
    each = max(1, _MOST // kinds.ngroups)
    place = flipped.groupby(["task", "right_full", "series"], sort=False).cumcount()
    ordered = flipped.assign(place=place).sort_values("place", kind="stable")
    parts = [
        own[own["right_full"] == gained].head(each).sort_index()
        for _, own in ordered.groupby("task", sort=False)
        for gained in (True, False)
    ]
    return pd.concat(parts).head(_MOST).drop(columns="place")


def _told(row: dict[Hashable, Any]) -> dict[str, str]:
    """The text and the answers; of a tagged text only the words with different tags, where the tags are whole."""
    words = str(row["text"]).split()
    answers = {"wanted": str(row["wanted"]), "frozen": str(row["said_frozen"]), "tuned": str(row["said_full"])}
    tags = {name: text.split() for name, text in answers.items()}
    if row["shape"] == "tagging" and {len(one) for one in tags.values()} == {len(words)}:
        places = [at for at in range(len(words)) if tags["frozen"][at] != tags["tuned"][at]]
        answers = {name: " · ".join(f"{words[at]}: {one[at]}" for at in places) for name, one in tags.items()}
    return {name: _short(text) for name, text in {"text": str(row["text"]), **answers}.items()}


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS].rstrip()} …"


def _sentence(both: pd.DataFrame) -> str:
    gained = int((both["right_full"] & ~both["right_frozen"]).sum())
    lost = int((both["right_frozen"] & ~both["right_full"]).sum())
    share = number(100 * (gained + lost) / len(both), 0)
    return (
        f"Of {len(both):,} examples that both answered, tuning all weights put {gained:,} right that frozen features "
        f"had wrong, and {lost:,} wrong that they had right ({share}% changed sides)."
    )
