"""Heads of tuned models: maps before and after, how many can be pruned, and whether tasks share important heads."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import Samples, listed, number
from infoflow.report._model_selection import ModelSelection
from infoflow.report.forms._chart import CONTROL, amount, by_key, finished, tips
from infoflow.report.forms._lines import control_lines, lines, looks_of, names_above
from infoflow.report.forms._marks import Constant, calculated, channel, draw, expression, filtered, span
from infoflow.report.forms._rows import cells
from infoflow.report.heads._statistics import kind_label

from ..measures import TASK_PRUNING, TUNING_HEADS, head_overlap
from ._rows import (
    HEADS,
    MOST_TASKS,
    averaged,
    bands,
    chosen_of,
    estimated,
    left_out,
    names_of,
    of,
    pretrained,
    square_panels,
    tasks_of,
)

STEPS = 10  # steps of the slider
_QUARTER = 0.25
_KEYS = ["series", "seed", "task", "stack", "kind"]
_MOST = 12  # maps
_MOVED = 5  # heads that the sentence names
_BETWEEN = ", "  # separator of a head's roles in its table
IMPORTANCE, CONFIDENCE, ATTENTION = "importance (rank)", "confidence", "attention moved (1: most)"


def heads_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Maps of the first seed, one set per task and statistic; None if heads are not known before and after tuning."""
    own = pretrained(frame)
    if own.empty:
        return None
    ranked = with_ranks(own)
    first = ranked[ranked["seed"] == ranked["seed"].min()]
    rows, sets = _drawn(first)
    if rows.empty:
        return None
    data = first[[*_KEYS, "layer", "head", "js", "js_low", "js_high", "confidence_before", "confidence_after",
                  "role_before", "role_after", "cost_before", "value", "low", "high", "fate"]]  # fmt: skip
    panels = [
        Panel(spec=_chart(own), title=f"{one.label}, {kind_label(str(stack), str(kind))}")
        for one, of_line in models.each(rows)
        for (stack, kind), own in of_line.groupby(["stack", "kind"], sort=False)  # type: ignore[misc]
    ]
    return ReportFigure(
        id="tuned-heads",
        question="Which heads changed their function by tuning?",
        answer=[text for one, own in models.each(ranked) for text in _sentences(own, one.label)],
        panels=panels[:_MOST],
        caption=f"{_seeds(ranked)} Both ends of the slider share one colour scale. No untrained model is shown, since "
        "its heads have no function to lose; two random quarters of the heads would share a sixteenth of all heads.",
        how_to_read=[
            "Each square is a head: layers from bottom (0) to top, heads from left to right. Move the slider, or "
            "focus it and press the arrow keys, to go from the model before tuning to the one after: what grows "
            "stronger matters more, what fades matters less. Choose task and statistic above the picture.",
            "Importance is a rank: before tuning, by the rise of the pretraining loss without the head; after, by the "
            "rise of the task's loss. Confidence is the mean strongest weight of a head's attention, on the same "
            "texts. Attention moved is a Jensen–Shannon divergence, relative to the head that moved most. A framed "
            "head is in the most important quarter only before or only after tuning.",
            "Roles are chosen on one half of the texts, and the 95% interval on the other half must exceed the role's "
            "limit; of the chosen heads that are no better than the limit, at most one in forty gets the role by "
            "chance.",
        ],
        method=HEADS,
        data=data,
        tables=(TUNING_HEADS.name,),
        findings=("adaptation:A-12",),
        template="before_after.html.jinja",
        payload={"sets": sets, "steps": STEPS, "layout": "wide", "apart": True},
    )


def with_ranks(own: pd.DataFrame) -> pd.DataFrame:
    """Add importance ranks from 0 to 1 before and after, and each head's fate, for each model and task."""
    parts = []
    for _, heads in own.groupby(["series", "seed", "task"], sort=False):
        ranks = [heads[name].rank(pct=True).to_numpy() for name in ("cost_before", "value")]
        top = [rank > 1 - _QUARTER for rank in ranks]
        fate = np.select([top[0] & top[1], top[1], top[0]], ["kept", "gained", "lost"], "")
        fate = fate if np.isfinite(ranks).all() else np.full(len(heads), "")  # no pretraining loss, or no task loss
        parts.append(heads.assign(rank_before=ranks[0], rank_after=ranks[1], fate=fate))
    return pd.concat(parts, ignore_index=True)


def _drawn(first: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row for each head, task and statistic known both before and after."""
    sets, parts = [], []
    first = first.assign(still=0.0, moved=first["js"] / (first["js"].max() or 1.0))
    for task in tasks_of(first):
        for name, columns in ((IMPORTANCE, ("rank_before", "rank_after")),
                              (CONFIDENCE, ("confidence_before", "confidence_after")),
                              (ATTENTION, ("still", "moved"))):  # fmt: skip
            rows = first[first["task"] == task].dropna(subset=list(columns))
            if len(rows):
                ends = rows.assign(before=rows[columns[0]], after=rows[columns[1]], set=len(sets), told=_text(rows))
                parts.append(
                    ends[["series", "stack", "kind", "layer", "head", "before", "after", "fate", "set", "told"]]
                )
                sets.append(f"{task}: {name}")
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"series": []})), sets


def _text(rows: pd.DataFrame) -> list[str]:
    return [
        f"costs {number(row.cost_before, 3)} nats of pretraining, {number(row.value, 3)} of the task; attention moved "
        f"by {number(row.js, 3)} nats; role {row.role_before or 'none'} → {row.role_after or 'none'}"
        for row in rows.itertuples()
    ]


def _chart(rows: pd.DataFrame) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in rows["layer"].unique()), reverse=True)
    base = filtered(rows.round({"before": 3, "after": 3}), "datum.set === shown")
    base = calculated(base, now=f"datum.before + (datum.after - datum.before) * frame / {STEPS}")
    heads = sorted(int(head) for head in rows["head"].unique())
    place = {
        "x": cells("x", "head", "head", heads, whole=True),
        "y": cells("y", "layer", "layer", layers, whole=True),
    }
    opacity = channel("opacity", "now:Q", scale={"domain": [0, 1], "range": [0.03, 1], "clamp": True}, legend=None)
    tooltip = tips("layer:O", "head:O", "now:Q|now|.2f", "before:Q|before|.2f", "after:Q|after|.2f", "told:N|numbers")
    marks = draw("rect", base, place, cornerRadius=2, color="var(--heat-2)", opacity=opacity, tooltip=tooltip)
    moved = filtered(base, "datum.fate === 'gained' || datum.fate === 'lost'")
    fate = by_key("stroke", "fate", ["gained", "lost"], ["var(--above)", "var(--below)"])
    frame = draw("rect", moved, place, filled=False, cornerRadius=2, strokeWidth=1.6, stroke=fate)
    known = sorted(int(one) for one in rows["set"].unique())
    missing = filtered(pd.DataFrame([{"text": "not measured"}]), f"indexof({known}, shown) < 0")
    middle = {axis: Constant(expression(f"{size} / 2")) for axis, size in (("x", "width"), ("y", "height"))}
    words = draw("text", missing, middle, color="var(--soft)", fontSize=11, text="text:N")
    return finished([marks, frame, words], max(22 * len(layers), 66), shown=0, frame=STEPS)


def _seeds(ranked: pd.DataFrame) -> str:
    seeds = int(ranked["seed"].nunique())
    stated = "sentences give means over all, except for the heads that they name"
    drawn = f"One of {seeds} seeds of pretraining is shown; {stated}." if seeds > 1 else "One seed."
    return f"{drawn} Numbers are means over seeds of tuning."


def _sentences(ranked: pd.DataFrame, name: str) -> list[str]:
    first = ranked[ranked["seed"] == ranked["seed"].min()]
    moved = first.groupby(["stack", "kind", "layer", "head"])["js"].mean().nlargest(_MOVED).reset_index()
    several = first[["stack", "kind"]].drop_duplicates().shape[0] > 1
    heads = [f"{layer}.{head}" + (f" ({kind_label(stack, kind)})" if several else "")
             for stack, kind, layer, head, _ in moved.itertuples(index=False, name=None)]  # fmt: skip
    other = [_roles(before) != _roles(after) for before, after in
             zip(ranked["role_before"], ranked["role_after"], strict=True)]  # fmt: skip
    attention = f"Attention moved most in heads {', '.join(heads)} (layer.head)"
    share = number(100 * float(np.mean(other)), 0)
    return [*_fates(ranked, name), f"{attention}; {share}% of the heads have other roles than before."]


def _roles(names: object) -> set[str]:
    """The set of a head's roles, regardless of their order."""
    return set(str(names).split(_BETWEEN)) - {""}


def _fates(ranked: pd.DataFrame, name: str) -> list[str]:
    """Shares of heads that kept, gained and lost importance; empty unless it is known before and after."""
    known = ranked[ranked.groupby(["task", "seed"])["fate"].transform(lambda fates: bool((fates != "").any()))]
    if known.empty:
        sides = {"before": "cost_before", "after": "value"}
        unknown = [side for side, column in sides.items() if bool(ranked[column].isna().any())]
        if not unknown:
            return [f"In {name}, no heads stand out by their importance."]
        side = unknown[0]
        why = ": there was no text or no language-model head for the pretraining loss" if side == "before" else ""
        return [f"In {name}, the importance of heads {side} tuning was not measured{why}."]
    shares = known.groupby(["task", "seed"])["fate"].value_counts(normalize=True).unstack(fill_value=0.0)
    means = {fate: float(shares[fate].mean()) if fate in shares else 0.0 for fate in ("kept", "gained", "lost")}
    parts = [f"{number(100 * share, 0)}% {fate}" for fate, share in means.items()]
    quarter = "their place in the most important quarter (6% would be in both of two random quarters)"
    return [f"In {name}, of all heads {listed(parts)} {quarter}."]


_HEIGHT = 220


def pruned_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per task; None if no heads were pruned."""
    own = pretrained(frame)
    own = own.assign(removed=own["removed"] / own["heads"].where(own["heads"] > 0))
    means = averaged(own, ["task", "order", "removed"])
    if means.empty:
        return None
    data = names_of(estimated(means, ["task", "order", "removed"]), models)
    tasks = tasks_of(data)
    return ReportFigure(
        id="tuned-pruning",
        question="How many heads can a tuned model do without?",
        answer=[text for task in tasks[:MOST_TASKS] for text in _pruned_sentences(of(means, task=task), task, models)],
        panels=[Panel(spec=_pruned_chart(of(data, task=task), models), title=task) for task in tasks[:MOST_TASKS]],
        caption=f"{bands(data)} Nothing is tuned again.{left_out(tasks)}",
        how_to_read=[
            "Across: the share of the heads that is removed, least important first. Up: the score that remains. "
            "Dashed grey: heads removed in random order.",
            "Where a curve is flat, the removed heads did nothing for this task. It would be surprising if random "
            "orders did as well.",
        ],
        method=HEADS,
        data=data,
        tables=(TASK_PRUNING.name,),
    )


def _pruned_chart(rows: pd.DataFrame, models: ModelSelection) -> dict[str, Any]:
    series = models.present(rows)
    x = amount("x", "removed", "heads removed", [-0.02, 1.02 * float(rows["removed"].max())], format="%", zero=None)
    at = {"x": x, "y": amount("y", "value", "score", span(rows[["low", "value", "high"]], margin=0.06, flat=0.05))}
    ordered, random = (of(rows, order=order) for order in ("importance", "random"))
    tooltip = tips("name:N|model", "removed:Q|removed|.0%", "shown:N|score")
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "at random", "var(--control)")] if len(random) else []
    grey = control_lines(random.drop(columns="shown"), at, CONTROL)
    drawn = lines(ordered, at, looks_of(series), size=34, touch=0, tooltip=tooltip)
    return finished([*grey, *drawn, names_above(names)], _HEIGHT)


def _pruned_sentences(means: pd.DataFrame, task: str, models: ModelSelection) -> list[str]:
    """The largest share of heads that can be pruned, by importance and at random, without a clear loss."""
    stated = []
    for one in models.present(means):
        shares = [_free(of(means, series=one.key, order=order)) for order in ("importance", "random")]
        if shares[0] is not None:
            at_random = "" if shares[1] is None else f" (at random {number(100 * shares[1], 0)}%)"
            stated.append(f"{number(100 * shares[0], 0)}% in {one.label}{at_random}")
    return (
        [f"On {task} the score is not clearly lower without the least important {', '.join(stated)}."] if stated else []
    )


def _free(rows: pd.DataFrame) -> float | None:
    by_share = {float(str(share)): Samples.of(own) for share, own in rows.groupby("removed", sort=True)}
    if 0.0 not in by_share:
        return None
    free = 0.0
    for share, samples in by_share.items():
        if share and (samples - by_share[0.0]).estimate().sign < 0:
            break
        free = share
    return free


MEASURES = {"spearman": "rank correlation over all heads", "jaccard": "overlap of the most important quarter"}


def overlap_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """One panel per line, with tasks by tasks and one set per measure; None if only one task has heads."""
    own = pretrained(frame)
    data = _agreement(own)
    if data.empty:
        return None
    tasks = tasks_of(own)
    rows = data.assign(
        label=data["task_a"],
        other=data["task_b"],
        order=data["task_b"].map(tasks.index),
        set=data["measure"].map(list(MEASURES).index),
        text=[number(value, 2) for value in data["value"]],
        shown=data["shown"] + [f"; unrelated tasks {number(chance, 2)}" for chance in data["baseline"]],
    ).sort_values("order", kind="stable")
    how = {"across": "other", "title": "other task", "quantity": "agreement", "signed": True}
    return ReportFigure(
        id="head-overlap",
        question="Do tasks need the same heads?",
        answer=[_sentence(own, one.label) for one, own in models.each(data)],
        panels=square_panels(rows, models.present(data), labels=tasks, strongest=1.0, **how),
        caption=f"{bands(data, 'heads')} Colours and numbers: agreement of two tasks about how important each head "
        "is, by the rise of the task's loss without it. 1: all the same; 0 or below: nothing in common.",
        how_to_read=[
            "Rows and columns are tasks. Choose above the picture between the order of all heads and the overlap of "
            "the most important quarters (two random quarters have a seventh of the heads in either in common).",
            "Agreement is limited by how precisely so few test examples determine a head's importance; claim A-12 "
            "takes this into account. It would be surprising if tasks needed quite different heads of one pretrained "
            "model.",
        ],
        method=HEADS,
        data=data,
        tables=(TUNING_HEADS.name,),
        findings=("adaptation:A-12",),
        **chosen_of(list(MEASURES.values())),
    )


def _agreement(own: pd.DataFrame) -> pd.DataFrame:
    """`head_overlap` for each line and each pair of tasks, in both orders: mean over seeds, with an interval."""
    parts = []
    for (series, seed), heads in own.groupby(["series", "seed"], sort=False):  # type: ignore[misc]
        by_task = {str(task): of_task for task, of_task in heads.groupby("task", sort=False)}
        known = {task: of_task for task, of_task in by_task.items() if bool(of_task["value"].notna().all())}
        parts += [found.assign(series=series, seed=seed) for found in _of_same_heads(known)]
    if not parts:
        return pd.DataFrame()
    every = pd.concat(parts, ignore_index=True)
    means = estimated(every.dropna(subset="value").assign(trained=True), ["task_a", "task_b", "measure"])
    turned = means.rename(columns={"task_a": "task_b", "task_b": "task_a"})
    return pd.concat([means, turned], ignore_index=True)


def _of_same_heads(tables: dict[str, pd.DataFrame]) -> list[pd.DataFrame]:
    """The pairs of tasks that were tuned in the same part of the model."""
    found = []
    for (a, first), (b, second) in combinations(sorted(tables.items()), 2):
        if len(first) == len(second) and set(first["stack"]) == set(second["stack"]):
            found.append(head_overlap({a: first, b: second}))
    return found


def _sentence(data: pd.DataFrame, name: str) -> str:
    stated = []
    for measure, words in MEASURES.items():
        rows = of(data, measure=measure)
        if len(rows):
            chance = float(np.mean(rows["baseline"]))
            stated.append(f"{words} {number(float(np.mean(rows['value'])), 2)} (unrelated tasks {number(chance, 2)})")
    return f"In {name}, over pairs of tasks: {', '.join(stated)}."
