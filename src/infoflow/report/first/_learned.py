"""Whether the models of a study have learned their tasks, by the rule that their objectives declare."""

from dataclasses import dataclass

import pandas as pd

from infoflow.objectives import OBJECTIVES, Metric
from infoflow.results import RETRIEVAL_SCORES, TASK_SCORES

from .._model_tables import ModelTables
from .._numbers import decimals, listed, number


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """The front page's statement about the models' scores."""

    passed: list[str]  # one score per learned line: "causal LM: loss 3.10 (3.09 to 3.12), without context 5.54"
    failed: list[str]  # sentences about those that have not
    dull: frozenset[str]  # lines with at least one model that has not learned

    @property
    def symbol(self) -> str:
        return "✗" if self.dull else "✓"


def learned(tables: ModelTables) -> Learned | None:
    """Compare each line's scores with the limit of its objective; None if no task was scored."""
    if tables.models.by != "objective":
        return None
    parts = [part for part in (_scored(tables), _readers(tables)) if part is not None]
    if not parts:
        return None
    return Learned(
        passed=[line for part in parts for line in part.passed],
        failed=[line for part in parts for line in part.failed],
        dull=frozenset().union(*(part.dull for part in parts)),
    )


def _readers(tables: ModelTables) -> Learned | None:
    """Check readers with passages by the share of their own training queries that they answer."""
    frame = tables.get(RETRIEVAL_SCORES.name)
    if frame is None:
        return None
    passed, failed, dull = [], [], set()
    frame = frame[frame["trained"] & frame["metric"].isin(["training_p1", "learned"])]
    for line in tables.models.present(frame):
        own = frame[frame["series"] == line.key]
        right = own[own["metric"] == "training_p1"]
        if right.empty:
            continue
        told = f"{right['value'].mean():.0%} of its training queries (a guess: {right['baseline'].mean():.0%})"
        if (own.loc[own["metric"] == "learned", "value"] > 0.5).all():  # 1 or 0
            passed.append(f"{line.label} {told}")
        else:
            dull.add(line.key)
            failed.append(f"{line.label} has not learned to answer: {told}")
    return Learned(passed=passed, failed=failed, dull=frozenset(dull)) if passed or failed else None


def _scored(tables: ModelTables) -> Learned | None:
    """Models with a score on their task."""
    frame = tables.get(TASK_SCORES.name)
    if frame is None or "corpus" in frame:
        return None
    frame = frame[frame["trained"] & (frame["split"] == ("test" if "test" in set(frame["split"]) else "validation"))]
    passed: list[str] = []
    failed: list[str] = []
    dull: set[str] = set()
    for line in tables.models.present(frame):
        own = frame[frame["series"] == line.key]
        objective = OBJECTIVES.get(str(own["objective"].iloc[0]))
        scored = [(metric, own[own["metric"] == metric.name]) for metric in (objective.metrics if objective else ())]
        scored = [(metric, rows) for metric, rows in scored if len(rows)]
        short = {
            metric: [row for row in rows.to_dict("records") if not _passes(metric, row)] for metric, rows in scored
        }
        if any(short.values()):
            dull.add(line.key)
            failed += [
                _failed(line.label, metric, short[metric], len(rows)) for metric, rows in scored if short[metric]
            ]
        elif scored:
            passed.append(f"{line.label} {', '.join(_passed(metric, rows) for metric, rows in scored)}")
    return Learned(passed=passed, failed=failed, dull=frozenset(dull)) if passed or failed else None


def _passes(metric: Metric, row: dict) -> bool:
    return metric.learned(float(row["low"]), float(row["high"]), float(row["baseline"]))


def _passed(metric: Metric, rows: pd.DataFrame) -> str:
    places = decimals(float(rows["low"].mean()), float(rows["high"].mean()), float(rows["value"].mean()))
    value, base = number(float(rows["value"].mean()), places), number(float(rows["baseline"].mean()), places)
    return f"{metric.label} {value} ({metric.baseline}: {base})"


def _failed(label: str, metric: Metric, short: list[dict], seeds: int) -> str:
    places = min(decimals(float(row["low"]), float(row["high"]), float(row["value"])) for row in short)
    values = listed([_short_value(metric, row, places) for row in short])
    which = "" if len(short) == seeds else f" in {len(short)} of {seeds} seeds"
    needed = metric.needed(float(short[0]["baseline"]))
    return f"{label} has not learned its task{which}: {metric.label} {values}, {needed}"


def _short_value(metric: Metric, row: dict, places: int) -> str:
    """A score that misses its limit; with its interval if only the interval misses it."""
    value, low, high = (float(row[name]) for name in ("value", "low", "high"))
    if not metric.learned(value, value, float(row["baseline"])):
        return number(value, places)
    return f"{number(value, places + 1)} ({number(low, places + 1)} to {number(high, places + 1)})"
