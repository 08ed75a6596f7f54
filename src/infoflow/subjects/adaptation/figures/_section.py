"""The section on tuning, and its first figures: scores after tuning, by task, method and pretraining."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from infoflow.report._figure import Panel, ReportFigure, Section
from infoflow.report._in_words import Samples, estimate_text, listed, number
from infoflow.report._model_tables import ModelTables
from infoflow.report._shown_models import ShownModels
from infoflow.report._theme import Series
from infoflow.report.forms._chart import color_of, shape_of, tips
from infoflow.report.forms._rows import interval_dots
from infoflow.results import scale_of

from ..measures import (
    DOMAIN_LOSS,
    LABEL_BY_LAYER,
    LAYER_SWAPS,
    PROBES_AFTER_TUNING,
    TASK_ANSWERS,
    TASK_LEAKAGE,
    TASK_PRUNING,
    TASK_SCORES,
    TUNING_ALLOCATION,
    TUNING_CHANGE,
    TUNING_HEADS,
    TUNING_WEIGHTS,
)
from ._change import change_figure, learned_figure, weights_figure
from ._flipped import flipped_figure
from ._heads import heads_figure, overlap_figure, pruned_figure
from ._readable import information_figure, label_figure, probes_figure
from ._rows import (
    AS_IS,
    FROM_SCRATCH,
    FROZEN,
    FULL,
    METHODS,
    MOST_TASKS,
    SCORED,
    SCORES,
    SHUFFLED,
    STRATEGIES,
    averaged,
    bands,
    beside_shuffled,
    estimated,
    left_out,
    most_examples,
    names_of,
    of,
    plain,
    scores_on_test,
    tasks_of,
    way_of,
)
from ._swaps import single_figure, swaps_figure
from ._worth import domain_figure, worth_figure

# Scores of each pretrained model after tuning: by task, by tuning method and by pretraining.


_WITHIN = {
    "pretraining": "the pretraining corpus",
    "domain": "the domain's corpus",
    "train": "the task's own training part",
}


def leaks(frame: pd.DataFrame) -> list[str]:
    """One sentence per task and corpus that share test texts; empty if none do."""
    own = frame[(frame["same"] > 0) | (frame["near"] > 0)].drop_duplicates(["task", "within"])
    return [_sentence(row) for row in own.to_dict("records")]


def _sentence(row: dict) -> str:
    same, near, texts = (int(row[name]) for name in ("same", "near", "texts"))
    where = _WITHIN.get(str(row["within"]), str(row["within"]))
    apart = near - same  # identical texts count as near, too
    parts = [f"{same:,} stand in {where}"] if same else []
    parts += [f"{apart:,} {'more ' if same else ''}are one word apart from a text of {where}"] if apart else []
    return f"{row['task']}: of {texts:,} test texts {' and '.join(parts)}."


_TOLD = 6
_CONTROLS = {"untrained": (FROM_SCRATCH, "cross", "✚"), SHUFFLED: (SHUFFLED, "triangle-down", "▼")}
"""Group of rows → the control's name, its mark, and its mark in the legend."""


def scores_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per task; None if nothing was fully tuned."""
    own = averaged(most_examples(plain(scores)), SCORED)
    if not bool(own["trained"].any()):
        return None
    own = own[own["task"].isin(own.loc[own["trained"], "task"])]  # the others were only tuned from scratch
    plainly = estimated(own, SCORED, scale_of)
    data = names_of(beside_shuffled(plainly, scores, SCORED, scale_of), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-scores",
        question="Which pretraining serves which task?",
        answer=[*_best(own, tasks, models), *_from_scratch(own)],
        panels=[
            Panel(spec=_chart(of(data, task=task), models), title=_title(data, task)) for task in tasks[:MOST_TASKS]
        ],
        caption=f"{bands(plainly)} Tuned: {way_of(scores)}; most labelled examples.{left_out(tasks)}",
        how_to_read=_how_to_read(data, models),
        method=SCORES,
        data=data,
        tables=(TASK_SCORES.name,),
        findings=tuple(f"adaptation:A-{number}" for number in (7, 8, 9, 10)),
        payload={"apart": True},
    )


def _how_to_read(data: pd.DataFrame, models: ShownModels) -> list[str]:
    row = "an objective of pretraining" if models.by == "objective" else "a model"
    told = [
        f"A row is {row}, across is the task's main metric on test examples, 1 the best. The dashed tick is the best "
        "guess without a model; it would be surprising if a tuned model were not above it.",
    ]
    if "untrained" in set(data["group"]):
        told.append(
            "The grey cross is the same model tuned from random weights, on the same examples: what lies between cross "
            "and mark is what pretraining gained."
            + " It would be surprising if crosses differed much between rows of one architecture: their models differ "
            "in nothing but whether they may look ahead." * (data["series"].nunique() > 1)
        )
    if SHUFFLED in set(data["group"]):
        told.append(
            "The grey triangle is the pretrained model tuned on labels that changed places: there is nothing to learn, "
            "so it should be no better than the guess. What a mark has above it comes from the labels."
        )
    return told if len(told) > 1 else [*told, "No control was tuned: neither from random weights nor on other labels."]


def _title(data: pd.DataFrame, task: str) -> str:
    return f"{task} ({int(of(data, task=task)['examples'].max()):,} labelled examples)"


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    rows = rows.assign(label=rows["name"])
    trained, grey = rows[rows["group"] == "trained"], rows[rows["group"] != "trained"]
    controls = {group: control for group, control in _CONTROLS.items() if group in set(grey["group"])}
    looks = pd.DataFrame([controls[group] for group in grey["group"]], grey.index, ["control", "shape", "mark"])
    names = [(mark, name, "var(--control)") for name, _, mark in controls.values()]
    series, told = models.present(trained), "pretrained for" if models.by == "objective" else "model"
    return interval_dots(
        trained.assign(short=[number(value, 2) for value in trained["value"]]),
        {"color": color_of(series), "shape": shape_of(series)},
        title="score (1: the best)",
        tooltip=tips(f"label:N|{told}", "shown:N|score", "baseline:Q|best guess|.2f"),
        step=32,
        grey=grey.assign(control=looks["control"], shape=looks["shape"]),
        legend=[*names, ("┆", "best guess", "var(--control)")] if names else None,
    )


def _best(own: pd.DataFrame, tasks: list[str], models: ShownModels) -> list[str]:
    """Each task's highest score and the lines that do not clearly differ from it; with one line, its score."""
    told = []
    for task in tasks[:_TOLD]:
        rows = of(own, task=task, trained=True)
        samples = {one: Samples.of(of(rows, series=one.key)) for one in models.present(rows)}
        best = max(samples, key=lambda one: samples[one].estimate().value)
        alike = [one.label for one in samples if one != best and not (samples[best] - samples[one]).estimate().sign]
        others = f" (not told apart: {listed(alike)})" if alike else ""
        does = "does best," if len(samples) > 1 else "has"
        told.append(f"On {task} {best.label} {does} {estimate_text(samples[best].estimate())}{others}.")
    return told


def _from_scratch(own: pd.DataFrame) -> list[str]:
    """Smallest and largest gain from pretraining over lines, for tasks that were also tuned from scratch."""
    gains = {}
    states = own.groupby(["series", "seed", "task"])["trained"].transform("nunique")
    for series, rows in averaged(own[states > 1], []).groupby("series", sort=False):
        both = [Samples.of(rows[rows["trained"] == which]) for which in (True, False)]
        if all(both):
            gains[series] = (both[0] - both[1]).estimate()
    if not gains:
        return []
    ends = sorted(gains.values(), key=lambda one: one.value)
    if len(ends) == 1:
        return [f"Pretraining gains {estimate_text(ends[0])} over tuning from scratch, mean over tasks."]
    return [
        f"Over tuning from scratch, pretraining gains least {estimate_text(ends[0])} and most "
        f"{estimate_text(ends[-1])}, means over tasks."
    ]


_BY = ["strategy", "method"]
_MOST = 8  # models with a panel


def ways_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per line that was tuned in several combinations of strategy and method; None if there is none."""
    own = most_examples(scores[(scores["control"] == "") & scores["trained"]])
    own = _same_tasks(own)
    counts = own.groupby("series")[_BY].apply(lambda rows: len(rows.drop_duplicates())) if len(own) else pd.Series()
    own = own[own["series"].isin(counts[counts > 1].index)] if len(counts) else own
    if own.empty:
        return None
    means = averaged(own, _BY)
    data = estimated(means, _BY)
    series = models.present(data)[:_MOST]
    return ReportFigure(
        id="tuned-ways",
        question="Frozen or tuned, general or in the domain?",
        answer=[text for one in series for text in _sentences(of(means, series=one.key), one.label)],
        panels=[Panel(spec=_way_chart(of(data, series=one.key), models), title=one.label) for one in series],
        caption=f"{bands(data)} Each model's mean over the tasks that it was tuned for in all of these ways, most "
        f"labelled examples.{_further(models.present(data))}",
        how_to_read=[
            "A row is a way to a model of the task: which text it was pretrained on, and what of it was trained on the "
            "labels. Across: mean over tasks of their main metrics on test examples. The dashed tick is the best guess "
            "without a model.",
            "Frozen features show what pretraining has put there already; what all weights add is what tuning moved. "
            "It would be surprising if frozen features won: they are a special case.",
        ],
        method=SCORES,
        data=data,
        tables=(TASK_SCORES.name,),
        findings=tuple(f"adaptation:A-{number}" for number in (2, 3, 4)),
        payload={"layout": "wide", "apart": True},
    )


def _further(series: list[Series]) -> str:
    """The caption's note about models without a panel."""
    names = [one.label for one in series[_MOST:]]
    return f" In the data, too: {listed(names)}." if names else ""


def _same_tasks(own: pd.DataFrame) -> pd.DataFrame:
    """Each line's tasks that were tuned in every one of its combinations of strategy and method."""
    parts = []
    for _, rows in own.groupby("series", sort=False):
        ways = [set(part["task"]) for _, part in rows.groupby(_BY, sort=False)]
        parts.append(rows[rows["task"].isin(set.intersection(*ways))])
    return pd.concat(parts) if parts else own


def way_label(strategy: str, method: str) -> str:
    return f"{STRATEGIES.get(strategy, strategy)}: {METHODS.get(method, method)}"


def _way_chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    orders = (list(STRATEGIES), list(METHODS)[::-1])
    places = [
        tuple(order.index(name) if name in order else len(order) for name, order in zip(pair, orders, strict=True))
        for pair in rows[_BY].astype(str).itertuples(index=False, name=None)
    ]
    ordered = rows.assign(place=places).sort_values("place")
    labels = [way_label(*pair) for pair in ordered[_BY].astype(str).itertuples(index=False, name=None)]
    return interval_dots(
        ordered.drop(columns="place").assign(label=labels, short=[number(value, 2) for value in ordered["value"]]),
        {"color": color_of(models.present(rows))},
        title="score, mean over tasks",
        tooltip=tips("label:N|way", "shown:N|score"),
        step=30,
    )


def _sentences(rows: pd.DataFrame, name: str) -> list[str]:
    found = {
        (strategy, method): Samples.of(own)
        for (strategy, method), own in rows.groupby(_BY, sort=False)  # type: ignore[misc]
    }
    told, gains = [], []
    for strategy in dict.fromkeys(pair[0] for pair in found):
        both = [found.get((strategy, method)) for method in (FULL, FROZEN)]
        if both[0] and both[1]:
            domain = f" ({STRATEGIES.get(strategy, strategy)})" if strategy != AS_IS else ""
            gains.append(f"{estimate_text((both[0] - both[1]).estimate())}{domain}")
    if gains:
        told.append(f"tuning all weights gains over frozen features {listed(gains)}")
    general = found.get((AS_IS, FULL))
    for strategy in [one for one in STRATEGIES if one != AS_IS]:
        if general and (domain := found.get((strategy, FULL))):
            gap = estimate_text((domain - general).estimate())
            told.append(f"all weights tuned, “{STRATEGIES[strategy]}” differs from “{STRATEGIES[AS_IS]}” by {gap}")
    for (strategy, method), own in found.items():
        if general and strategy == AS_IS and method not in (FULL, FROZEN):
            gap = estimate_text((own - general).estimate())
            told.append(f"“{METHODS.get(method, method)}” differs from “{METHODS[FULL]}” by {gap}")
    return [f"In {name}, {'; '.join(told)}."] if told else []


# The section on tuning: results of tuning, and what it changed inside the models.


ADAPTATION = Section(
    id="adaptation",
    title="What did fine-tuning change?",
    lead="Pretrained models are tuned for tasks. How well does each do, what is pretraining worth in labelled "
    "examples, which layers and heads does tuning change, and what does the model forget?",
    names={
        "tuned-scores": "adaptation/scores",
        "tuned-ways": "adaptation/methods",
        "tuned-domain": "adaptation/domain",
        "tuned-worth": "adaptation/labelled-examples",
        "tuning-change": "adaptation/change",
        "tuning-weights": "adaptation/weights",
        "label-by-layer": "adaptation/label",
        "information-after-tuning": "adaptation/information",
        "probes-after-tuning": "adaptation/probes",
        "layer-swaps": "adaptation/layer-swaps",
        "single-blocks": "adaptation/single-blocks",
        "tuning-learned": "adaptation/allocation",
        "tuned-heads": "adaptation/heads",
        "head-overlap": "adaptation/head-overlap",
        "tuned-pruning": "adaptation/pruning",
        "tuned-flipped": "adaptation/flipped",
    },
)
_INSIDE: tuple[tuple[str, Callable[[pd.DataFrame, ShownModels], ReportFigure | None]], ...] = (
    (TUNING_CHANGE.name, change_figure),
    (TUNING_WEIGHTS.name, weights_figure),
    (LABEL_BY_LAYER.name, label_figure),
    (LABEL_BY_LAYER.name, information_figure),
    (PROBES_AFTER_TUNING.name, probes_figure),
    (LAYER_SWAPS.name, swaps_figure),
    (LAYER_SWAPS.name, single_figure),
    (TUNING_ALLOCATION.name, learned_figure),
    (TUNING_HEADS.name, heads_figure),
    (TUNING_HEADS.name, overlap_figure),
    (TASK_PRUNING.name, pruned_figure),
    (TASK_ANSWERS.name, flipped_figure),
)
_OF_ONE_STACK = (TUNING_CHANGE.name, LABEL_BY_LAYER.name, PROBES_AFTER_TUNING.name, TUNING_WEIGHTS.name)


def adaptation_section(tables: ModelTables) -> Section | None:
    """The section, or None if nothing was tuned."""
    models = tables.models
    names = (TASK_SCORES.name, DOMAIN_LOSS.name, *dict.fromkeys(name for name, _ in _INSIDE))
    frames = tables.some(names)
    frames |= {name: _main(frames[name], models) for name in _OF_ONE_STACK if name in frames}
    figures: list[ReportFigure | None] = []
    scores = scores_on_test(frames[TASK_SCORES.name]) if TASK_SCORES.name in frames else None
    if scores is not None:
        figures += [make(scores, models) for make in (scores_figure, ways_figure, worth_figure)]
    if (losses := frames.get(DOMAIN_LOSS.name)) is not None:
        figures.append(domain_figure(losses, scores, models))
    figures += [make(frames[name], models) for name, make in _INSIDE if name in frames]
    section = ADAPTATION.told_by(figures, models, [frame for frame in frames.values() if "series" in frame])
    leaked = tables.of_run(TASK_LEAKAGE.name)
    if section is None or leaked is None or not (told := leaks(leaked)):
        return section
    return replace(section, template="leakage.html.jinja", payload={"leaks": told})


def _main(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """The stack that is compared across models, plus parts outside any stack, such as shared embeddings."""
    return pd.concat([models.main(frame), models.others(frame).query("stack == ''")])
