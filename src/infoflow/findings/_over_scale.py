"""Every claim in every run of a grid of scales: effects beside threshold and published value, and how they change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import current_display
from infoflow.results import BERT, END, UNTRAINED, Column, RunFolder, TableSchema

from ._condition import UNTESTABLE, Condition, Outcome, short
from ._evaluate import Judged, judged
from ._finding import Finding, Untested
from ._over_training import claims_over_training
from ._registry import FINDINGS
from ._scale_run import ScaleRun, scale_runs
from ._scale_trends import TRENDS, told_of_claims, trends
from ._schema import FINDINGS_TABLE

FINDINGS_OVER_SCALE = TableSchema(
    name="findings_over_scale",
    version=1,
    description="Published claims, each tested on every run of a grid of scales, at the end of training and at each "
    "checkpoint; a row for each of a claim's conditions. Of those `followed` a claim has one a run and update.",
    columns=(
        Column(name="id", dtype="string", unit="", description="room and number of the claim"),
        Column(name="claim", dtype="string", unit="", description="the claim in plain words"),
        Column(name="architecture", dtype="string", unit="", description="family of the blocks of the models"),
        Column(name="run", dtype="string", unit="", description="name of the run's folder"),
        Column(name="corpus", dtype="string", unit="", description="what its models were trained on"),
        Column(name="width", dtype="int64", unit="units", description="of the states"),
        Column(
            name="layers",
            dtype="int64",
            unit="layers",
            description="of a stack; of an encoder beside a decoder, its own",
        ),
        Column(name="decoder_layers", dtype="int64", unit="layers", description="of a decoder beside an encoder"),
        Column(
            name="update",
            dtype="int64",
            unit="updates",
            description="how many the models had; -1: all. Checkpoints are measured in less text",
        ),
        Column(
            name="tokens",
            dtype="float64",
            unit="tokens",
            description="of the source that the claim's models had read until then",
        ),
        Column(name="updates", dtype="float64", unit="updates", description="of the whole training"),
        Column(
            name="parameters",
            dtype="float64",
            unit="parameters",
            description="mean over the claim's models, as the next two",
        ),
        Column(name="flops", dtype="float64", unit="operations", description="of the whole training; NaN: not counted"),
        Column(name="cpu_seconds", dtype="float64", unit="s", description="of the whole training; NaN: not on record"),
        Column(
            name="condition",
            dtype="string",
            unit="",
            description="what of the claim the effect is of; empty: nothing was measured",
        ),
        Column(
            name="followed",
            dtype="bool",
            unit="",
            description="the claim's condition that decides its verdict in most runs",
        ),
        Column(name="decides", dtype="bool", unit="", description="this condition decides the verdict here"),
        Column(
            name="verdict", dtype="string", unit="", description="of the claim, by all its conditions: see findings"
        ),
        Column(name="effect", dtype="float64", unit="see unit", description="estimate of the condition"),
        Column(name="low", dtype="float64", unit="see unit", description="lower end of its 95% interval"),
        Column(name="high", dtype="float64", unit="see unit", description="upper end of its 95% interval"),
        Column(
            name="seed_error",
            dtype="float64",
            unit="see unit",
            description="standard error by the choice of seeds; NaN: not known (one seed)",
        ),
        Column(
            name="sentence_error",
            dtype="float64",
            unit="see unit",
            description="the same by sentences, beyond what the spread of seeds holds",
        ),
        Column(name="threshold", dtype="float64", unit="see unit", description="what the effect must lie beyond"),
        Column(name="above", dtype="bool", unit="", description="the claim says above; false: below"),
        Column(
            name="published",
            dtype="float64",
            unit="see unit",
            description="the same number by the source's own; NaN: it gives none",
        ),
        Column(name="unit", dtype="string", unit="", description="unit of the effect"),
        Column(name="seeds", dtype="int64", unit="seeds", description="number of seeds behind the effect"),
        Column(
            name="effects",
            dtype="list<float64>",
            unit="see unit",
            description="the effect of each seed alone, in the order of the seeds",
        ),
        Column(name="reason", dtype="string", unit="", description="what decided the verdict, or why there is none"),
    ),
)


FINDINGS_AT_SCALE = replace(
    FINDINGS_TABLE,
    description="Published claims, each as tested on the largest run that can test it, and how its effect changes over "
    "all runs.",
    columns=(
        *FINDINGS_TABLE.columns,
        Column(name="run", dtype="string", unit="", description="name of the run that this row is of"),
        Column(
            name="trend",
            dtype="string",
            unit="",
            description="of the condition that is followed: see the tables findings_over_scale, trends",
        ),
    ),
)


def findings_over_scale(runs: Iterable[ScaleRun | RunFolder | Path | str]) -> dict[str, pd.DataFrame]:
    """`FINDINGS_OVER_SCALE`, `TRENDS` and `FINDINGS_AT_SCALE` of several studies, whatever their order.

    Each run is judged by itself, as `evaluate` and `findings_over_training` do: with its own seeds and controls, and
    with the same refusals. **Of a claim with several conditions one is followed** over all runs and checkpoints: the
    one that decides the verdict in most runs (of as many, the first). What is weakest in the largest run would be
    chosen partly for its bad luck there, and seem to fall.

    Args:
        runs: Folders of studies, or what `ScaleRun` says of them.

    Raises:
        UserError: See `scale_runs`.
    """
    given = scale_runs(runs)
    pairs: list[tuple[ScaleRun, Judged]] = []
    with current_display().progress("Claims", total=len(given), unit="runs") as progress:
        for run in given:
            pairs += [(run, one) for one in _judged(run)]
            progress.advance()
    rows = [row for run, one in pairs for row in _of_claim(run, one)]
    found = _followed(pd.DataFrame(rows, columns=pd.Index(FINDINGS_OVER_SCALE.column_names)))
    found = FINDINGS_OVER_SCALE.conform(found)
    course = trends(found)
    largest = pd.DataFrame(_largest(pairs, told_of_claims(course)))
    return {
        FINDINGS_OVER_SCALE.name: found,
        TRENDS.name: course,
        FINDINGS_AT_SCALE.name: FINDINGS_AT_SCALE.conform(largest),
    }


def _judged(run: ScaleRun) -> Iterator[Judged]:
    """All claims at the end of the run's trainings, then at its checkpoints."""
    for one in judged(run.tables, FINDINGS.values()):
        if one.row["update"] != UNTRAINED:
            yield one
    view, claims = claims_over_training(run.tables)
    for one in judged(view, claims) if claims else ():
        if one.row["update"] not in (END, UNTRAINED):
            yield one


def _largest(pairs: Iterable[tuple[ScaleRun, Judged]], told: Mapping[tuple[str, str], str]) -> list[dict[str, Any]]:
    """Of each claim and architecture the row of the findings of the run that cost most, among those that test it."""
    best: dict[tuple[str, str], tuple[tuple[bool, float, str], dict[str, Any]]] = {}
    for run, one in pairs:
        if one.row["update"] != END:
            continue
        key = (str(one.row["id"]), str(one.row["architecture"]) or BERT.name)
        scale = _scale(run, FINDINGS[key[0]], str(one.row["architecture"]), END)
        cost = float(np.nan_to_num(scale["tokens"] * scale["parameters"]))
        rank = (one.row["verdict"] != UNTESTABLE, cost, run.name)
        row = {**one.row, "architecture": key[1], "run": run.name, "trend": told.get(key, "")}
        if key not in best or rank > best[key][0]:
            best[key] = (rank, row)
    return [row for _, row in best.values()]


def _of_claim(run: ScaleRun, found: Judged) -> Iterator[dict[str, Any]]:
    """A row for each condition; one without a number where nothing was measured."""
    row = found.row
    finding = FINDINGS[str(row["id"])]
    keys = {name: row[name] for name in ("id", "claim", "update", "verdict", "reason", "seeds")}
    keys |= {"architecture": row["architecture"] or BERT.name, "followed": False, **run.facts()}
    keys |= _scale(run, finding, str(row["architecture"]), int(str(row["update"])))
    if not found.outcomes:
        empty = dict.fromkeys(
            ("effect", "low", "high", "seed_error", "sentence_error", "threshold", "published"), float("nan")
        )
        yield {**keys, **empty, "condition": "", "decides": False, "above": True, "unit": "", "effects": []}
    names = _distinct([outcome.condition for outcome in found.outcomes])
    for place, outcome in enumerate(found.outcomes):
        yield {**keys, **_numbers(outcome), "condition": names[place], "decides": place == found.deciding}


def _distinct(conditions: list[Condition]) -> list[str]:
    """Their names; of the two ends of a range, with what each must pass."""
    counts = Counter(one.name for one in conditions)
    sign = {"above": ">", "below": "<"}
    return [
        one.name if counts[one.name] == 1 else f"{one.name}: {sign[one.side]} {short(one.threshold)}"
        for one in conditions
    ]


def _numbers(outcome: Outcome) -> dict[str, Any]:
    condition = outcome.condition
    return {
        "effect": outcome.effect,
        "low": outcome.low,
        "high": outcome.high,
        "seed_error": outcome.seed_error,
        "sentence_error": outcome.sentence_error,
        "threshold": condition.threshold,
        "above": condition.side == "above",
        "published": condition.published,
        "unit": condition.unit,
        "effects": outcome.effects,
    }


def _scale(run: ScaleRun, finding: Finding | Untested, architecture: str, update: int) -> dict[str, float]:
    """Of the claim's models; a checkpoint has read its share of the updates' tokens: batches are of one size."""
    learned = finding.learned if isinstance(finding, Finding) else ()
    scale = run.scale(learned, architecture)
    share = 1.0 if update == END else update / scale["updates"]
    return {**scale, "tokens": scale["tokens"] * share}


def _followed(found: pd.DataFrame) -> pd.DataFrame:
    """With `followed`, which is true of one condition of each claim on each architecture."""
    chosen = {key: _most_decisive(own) for key, own in found.groupby(["id", "architecture"], sort=False)}
    keys = zip(found["id"], found["architecture"], found["condition"], strict=True)
    return found.assign(followed=[condition in (chosen[id, family], "") for id, family, condition in keys])


def _most_decisive(rows: pd.DataFrame) -> str:
    """The condition that decides in most runs; checkpoints count where no run's end was tested, and what could not be
    tested where nothing was."""
    tested, ended = rows["verdict"] != UNTESTABLE, rows["update"] == END
    for counted in (tested & ended, tested, ended, ended | ~ended):
        deciding = rows[counted & rows["decides"]]
        if len(deciding):
            counts = deciding["condition"].value_counts()
            order = list(dict.fromkeys(rows["condition"]))
            return min(counts.index, key=lambda name: (-counts[name], order.index(name)))
    return ""
