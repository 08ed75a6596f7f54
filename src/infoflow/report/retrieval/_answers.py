"""Answers of readers of real text: exact matches, without a passage and with one."""

import pandas as pd

from .._figure import Panel, ReportFigure
from .._in_words import by_answer
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._chart import color_of, shape_of, tips
from ..forms._dots import interval_dots
from ..forms._lines import SHARE
from ._methods import ANSWERED
from ._rows import arms, drawn, mean_of, seeds_note

_NOT_LEAKED = "not leaked"
_PANELS = {
    ("trained", "none"): "questions of training, no passage",
    ("trained", "gold"): "questions of training, the right passage",
    ("held out", "none"): "new questions, no passage",
    ("held out", "own"): "new questions, what it finds itself",
    ("held out", "gold"): "new questions, the right passage",
    ("held out", "random"): "new questions, a random passage",
}


def answers_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each kind of question and passage; None where readers answered no questions about text."""
    own = of(arms(frame), metric="em", k=0)
    own = own[own["system"].isin(["none", "own", "gold", "random"])]
    if own.empty or not bool(own["trained"].any()):
        return None
    data = drawn(own, ["queries", "system"], models, SHARE).assign(label=lambda rows: rows["name"])
    series = models.present(data)
    panels = []
    for (queries, system), title in _PANELS.items():
        rows = of(data, queries=queries, system=system)
        trained, grey = rows[rows["trained"]], rows[~rows["trained"]]
        if trained.empty:
            continue
        spec = interval_dots(
            trained.assign(short=[number(value, 2) for value in trained["value"]]),
            {"color": color_of(series), "shape": shape_of(series)},
            title="exact match",
            bounds=(0.0, 1.0),
            domain=(-0.01, min(1.02, 1.15 * float(data["high"].max()) + 0.02)),
            tooltip=tips("label:N|trained as", "shown:N|exact match", "baseline:Q|most frequent answer|.3f"),
            step=30,
            grey=grey[grey["label"].isin(trained["label"])],
        )
        panels.append(Panel(spec=spec, title=title))
    return ReportFigure(
        id="text-answers",
        question="What does a reader of real text answer, from memory and from a passage?",
        answer=[*_told(data, models), *_without_leaks(data, models)],
        words=by_answer({one.label: _from_what(data, one.key) for one in series}, "new questions are answered "),
        panels=panels,
        caption=f"{seeds_note(data)} Dashed tick: the most frequent right answer, said to all. Grey cross: before "
        "training.",
        how_to_read=[
            "A row is a way of training, a panel a kind of question and what is read beside it; across, the share of "
            "questions answered exactly, articles and punctuation aside. Masks tell how long an answer is.",
            "Questions of training without a passage show what weights hold; new questions without a passage are the "
            "control, about passages that no question of training was about. It would be surprising if a random "
            "passage helped.",
        ],
        method=ANSWERED,
        data=data,
        tables=("retrieval_scores",),
        payload={"apart": True},
    )


def _told(data: pd.DataFrame, models: ShownModels) -> list[str]:
    """Answers from memory and from the right passage, of each line."""
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


def _without_leaks(data: pd.DataFrame, models: ShownModels) -> list[str]:
    """Answers to new questions without those that training asks too, where there are such."""
    asked = {name: of(data, trained=True, queries=name)["count"] for name in ("held out", _NOT_LEAKED)}
    if any(counts.empty for counts in asked.values()):
        return []
    every, others = (int(counts.max()) for counts in asked.values())
    parts = []
    for one in models.present(data[data["trained"]]):
        for system in ("own", "none"):
            values = [mean_of(data, series=one.key, queries=name, system=system) for name in (_NOT_LEAKED, "held out")]
            if None not in values:
                rest, whole = (number(100 * value, 0) for value in values if value is not None)
                parts.append(f"{one.label} {rest}% ({whole}% of all)")
                break
    return [f"Training asks {every - others:,} of the {every:,} new questions too. Of the others: {listed(parts)}."]


def _from_what(data: pd.DataFrame, key: str) -> str:
    """Whether the right passage is read."""
    rows = of(data, series=key, trained=True, queries="held out").set_index("system")
    if not {"none", "gold"} <= set(rows.index):
        return ""
    better = float(rows.loc["gold", "low"]) > float(rows.loc["none", "high"])
    return "better with the right passage" if better else "no better with the right passage"
