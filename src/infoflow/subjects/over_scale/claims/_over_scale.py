"""Every claim in every run of a grid of scales: effects with threshold and published value, and how they change."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from infoflow.findings._condition import UNTESTABLE, Condition, Outcome, short
from infoflow.findings._evaluate import Judged, judged
from infoflow.findings._finding import Finding
from infoflow.findings._judged_run import JudgedRun
from infoflow.findings._registry import FINDINGS
from infoflow.findings._scale_schema import FINDINGS_AT_SCALE, FINDINGS_BY_RUN, FINDINGS_OVER_SCALE
from infoflow.foundation import current_display
from infoflow.results import BERT, END, UNTRAINED, RunFolder, TableSchema
from infoflow.subjects.over_training.claims._over_training import claims_over_training

from ._scale_run import ScaleRun, scale_runs
from ._scale_trends import TRENDS, told_of_claims, trends


def findings_over_scale(runs: Iterable[ScaleRun | JudgedRun | RunFolder | Path | str]) -> dict[str, pd.DataFrame]:
    """`FINDINGS_OVER_SCALE`, `TRENDS`, `FINDINGS_BY_RUN` and `FINDINGS_AT_SCALE` of several studies, in any order.

    Each run is judged separately, as in `evaluate` and `findings_over_training`: with its own seeds and controls, and
    the same reasons for no verdict. **For a claim with several conditions one is followed** over all runs and
    checkpoints: the one that decides the verdict in most runs (ties: the first). Choosing the weakest in the largest
    run would select it partly for bad luck there, and it would appear to fall.

    Args:
        runs: Folders of studies, or `ScaleRun`s of them. Folders of earlier comparisons stand for the studies that they
            compared: their stored results are reused, and the result covers all studies.

    Raises:
        UserError: See `scale_runs`.
    """
    given = scale_runs(runs)
    rows, findings, costs = [], [], []
    with current_display().progress("Claims", total=len(given), unit="runs") as progress:
        for run in given:
            one = run if isinstance(run, JudgedRun) else _judged_run(run)
            rows.append(one.rows)
            findings.append(one.findings)
            costs += one.costs()
            progress.advance()
    found = FINDINGS_OVER_SCALE.conform(_followed(pd.concat(rows, ignore_index=True)))
    each = FINDINGS_BY_RUN.conform(pd.concat(findings, ignore_index=True))
    course = trends(found)
    return {
        FINDINGS_OVER_SCALE.name: found,
        TRENDS.name: course,
        FINDINGS_BY_RUN.name: each,
        FINDINGS_AT_SCALE.name: _largest(each.assign(cost=costs), told_of_claims(course)),
    }


def _judged_run(run: ScaleRun) -> JudgedRun:
    own = list(_judged(run))
    rows = pd.DataFrame([row for one in own for row in _of_claim(run, one)], columns=_columns(FINDINGS_OVER_SCALE))
    ends = [
        {**one.row, "architecture": one.row["architecture"] or BERT.name, "run": run.name}
        for one in own
        if one.row["update"] == END
    ]
    return JudgedRun(
        entry=run.entry,
        rows=FINDINGS_OVER_SCALE.conform(rows),
        findings=FINDINGS_BY_RUN.conform(pd.DataFrame(ends, columns=_columns(FINDINGS_BY_RUN))),
    )


def _columns(schema: TableSchema) -> pd.Index:
    return pd.Index(schema.column_names)


def _judged(run: ScaleRun) -> Iterator[Judged]:
    """All claims at the end of the run's trainings, then at its checkpoints."""
    for one in judged(run.tables, FINDINGS.values()):
        if one.row["update"] != UNTRAINED:
            yield one
    view, claims = claims_over_training(run.tables)
    for one in judged(view, claims) if claims else ():
        if one.row["update"] not in (END, UNTRAINED):
            yield one


def _largest(findings: pd.DataFrame, told: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    """For each claim and architecture the row of the most expensive run among those that test it."""
    findings = findings.assign(tested=findings["verdict"] != UNTESTABLE)
    keys = ["id", "architecture"]
    down = findings.sort_values(["tested", "cost", "run"], ascending=False, kind="stable")
    order = findings.drop_duplicates(keys)[keys]
    chosen = order.merge(down.drop_duplicates(keys), on=keys, how="left")
    trend = [told.get((id, family), "") for id, family in chosen[keys].itertuples(index=False)]
    return FINDINGS_AT_SCALE.conform(chosen.drop(columns=["tested", "cost"]).assign(trend=trend))


def _of_claim(run: ScaleRun, found: Judged) -> Iterator[dict[str, Any]]:
    """A row for each condition, without a number if nothing was measured."""
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
    """The condition names; the two ends of a range also get their thresholds."""
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


def _scale(run: ScaleRun, finding: Finding, architecture: str, update: int) -> dict[str, float]:
    """Scale of the claim's models; a checkpoint has read its share of the tokens, since batches have equal sizes."""
    scale = run.scale(finding.learned, architecture)
    share = 1.0 if update == END else update / scale["updates"]
    return {**scale, "tokens": scale["tokens"] * share}


def _followed(found: pd.DataFrame) -> pd.DataFrame:
    """Add `followed`, which is true for one condition of each claim on each architecture."""
    chosen = {key: _most_decisive(own) for key, own in found.groupby(["id", "architecture"], sort=False)}
    keys = zip(found["id"], found["architecture"], found["condition"], strict=True)
    return found.assign(followed=[condition in (chosen[id, family], "") for id, family, condition in keys])


def _most_decisive(rows: pd.DataFrame) -> str:
    """The condition that decides in most runs.

    Checkpoints count only if no run was tested at its end, and untestable rows only if nothing was tested.
    """
    tested, ended = rows["verdict"] != UNTESTABLE, rows["update"] == END
    for counted in (tested & ended, tested, ended, ended | ~ended):
        deciding = rows[counted & rows["decides"]]
        if len(deciding):
            counts = deciding["condition"].value_counts()
            order = list(dict.fromkeys(rows["condition"]))
            return min(counts.index, key=lambda name: (-counts[name], order.index(name)))
    return ""
