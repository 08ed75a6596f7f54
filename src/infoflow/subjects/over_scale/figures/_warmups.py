"""The section on two warm-ups: whether the stages of learning are timed by updates, or by the sum of learning rates."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.foundation import interval_over_seeds
from infoflow.report._figure import DeclaredFigure, Drawn, Method, Panel, Section, names_of
from infoflow.report._in_words import Estimate, estimate_text, listed, number
from infoflow.report._model_tables import ModelTables
from infoflow.report._theme import objective_label
from infoflow.report.forms._chart import tips
from infoflow.report.forms._marks import Constant
from infoflow.report.forms._rows import interval_dots
from infoflow.subjects.over_training.figures._prediction import ngrams
from infoflow.subjects.over_training.measures import CHECKPOINT_STEPS, STAGES_BY_WARMUP

_METHOD = Method(
    id="stages-by-warmup",
    title="Stages by warm-up",
    text=r"""
    While a language model learns the statistics of n tokens, it first approaches the n-gram model of its training text
    and then moves away from it. The stage is the checkpoint \(t^*_n\) at which \(KL(Q_n \Vert P_t)\) is least; two
    training runs of one seed that differ only in their warm-up are compared by \(\log_2 t^*_{long} / t^*_{short}\) and
    by the same ratio of \(S(t) = \sum_{s \le t} \eta_s\). While the rate rises, \(S(t) = \eta_{max} t^2 / 2w\): a stage
    that comes at a given sum comes \(\sqrt{w_{long} / w_{short}}\) times as late. Intervals cover the choice of seeds
    and extend at least one step between checkpoints to either side.
    """,
)
_MEASURES = {"updates": "updates", "rates": "sum of learning rates"}
_KEYS = ["objective", "variant", "architecture", "start"]


class _Row(NamedTuple):
    """The delay of one stage over seeds, measured in updates or in the sum of learning rates."""

    order: int
    measure: str
    grown: Estimate
    other_seed: float  # mean distance in doublings to other seeds with the same warm-up; NaN with one seed
    expected: float  # doublings to expect if the sum of learning rates determined the stage


def timed_stages(tables: ModelTables) -> pd.DataFrame | None:
    """The table of two warm-ups; None if it is missing or no stage has a time."""
    found = tables.of_run(STAGES_BY_WARMUP.name)
    return None if found is None or not np.isfinite(found["value"]).any() else found


def _stages(found: pd.DataFrame) -> Drawn:
    groups = [(_label(own, found), list(_rows(own))) for _, own in found.groupby(_KEYS, sort=False, dropna=False)]
    groups = [(label, rows) for label, rows in groups if rows]
    short, long = (int(found.loc[found["compared"] == "warm-up", name].iloc[0]) for name in ("warmup", "other_warmup"))
    gaps = found.loc[np.isfinite(found["value"]), "gap"]
    return Drawn(
        data=found.drop(columns="replicates"),
        panels=[Panel(spec=_chart(rows), title=label) for label, rows in groups],
        answer=[_sentence(label, rows) for label, rows in groups],
        caption=f"{found['seed'].nunique()} seeds; checkpoints around the stages lie {number(float(gaps.min()), 2)} "
        f"to {number(float(gaps.max()), 2)} doublings of updates apart; no interval is narrower than that on "
        "either side.",
        facts={"long": f"{long:,}", "short": f"{short:,}"},
    )


def _label(own: pd.DataFrame, found: pd.DataFrame) -> str:
    """The objective's name, with the architecture and the start if there are several."""
    first = own.iloc[0]
    several = [str(first[name]) for name in ("architecture", "start") if len(set(found[name])) > 1]
    label = objective_label(str(first["objective"]), str(first["variant"]))
    stated = ", ".join(filter(None, several))
    return f"{label} ({stated})" if stated else label


def _rows(own: pd.DataFrame) -> Iterator[_Row]:
    finite = own[np.isfinite(own["value"])]
    for order, stage in finite.groupby("order"):
        for measure in _MEASURES:
            rows = stage[stage["measure"] == measure]
            grown, others = rows[rows["compared"] == "warm-up"], rows[rows["compared"] == "seed"]
            if grown.empty:
                continue
            half = float(np.log2(grown["other_warmup"].iloc[0] / grown["warmup"].iloc[0]) / 2)
            yield _Row(
                order=int(str(order)),
                measure=measure,
                grown=_estimate(grown, steps=CHECKPOINT_STEPS[measure]),
                other_seed=float(others["value"].abs().mean()) if len(others) else np.nan,
                expected=half if measure == "updates" else 0.0,
            )


def _estimate(rows: pd.DataFrame, steps: int) -> Estimate:
    """Mean over seeds. Its interval extends at least `steps` checkpoint gaps to each side."""
    values = rows["value"].to_numpy(float)
    draws = np.array([np.asarray(one, dtype=float) for one in rows["replicates"]])
    found = interval_over_seeds([(int(seed),) for seed in rows["seed"]], values, draws)
    mean = float(values.mean())
    low, high = found.reaching(mean, steps * float(rows["gap"].max()))
    return Estimate(value=mean, low=low, high=high, seeds=len(rows), count=len(rows))


def _sentence(label: str, rows: list[_Row]) -> str:
    parts = []
    for order in dict.fromkeys(row.order for row in rows):
        by = {row.measure: row.grown for row in rows if row.order == order}
        later = f"{estimate_text(by['updates'], 'doublings')} of updates later"
        at = f", at {estimate_text(by['rates'], 'doublings')} more of the summed rates" if "rates" in by else ""
        parts.append(f"the stage of {ngrams(order)} comes {later}{at}")
    return f"In {label}, {listed(parts)}."


def _chart(rows: list[_Row]) -> dict[str, Any]:
    frame = pd.DataFrame(
        {
            "label": [f"{ngrams(row.order)}, {_MEASURES[row.measure]}" for row in rows],
            "value": [row.grown.value for row in rows],
            "low": [row.grown.low for row in rows],
            "high": [row.grown.high for row in rows],
            "baseline": [row.expected for row in rows],
            "count": [row.grown.count for row in rows],
            "seeds": [row.grown.seeds for row in rows],
        }
    ).round(4)
    known = [row.measure == "updates" and np.isfinite(row.other_seed) for row in rows]
    grey = frame.assign(value=[row.other_seed for row in rows])[np.array(known)]
    return interval_dots(
        frame,
        {"color": Constant("var(--above)")},
        title="doublings later",
        tooltip=tips("label:N|stage", "value:Q|doublings|.2f", "low:Q|from|.2f", "high:Q|to|.2f", "seeds:Q|seeds"),
        grey=grey.assign(shown=[f"{value:.2f} to the next seed" for value in grey["value"]]),
        step=30,
        dim=False,
    )


STAGES = DeclaredFigure(
    name="scale/warmups",
    id="stages-by-warmup",
    question="How much later do stages come with a warm-up of {long} updates instead of {short}?",
    how_to_read=(
        "Each row is a stage: the checkpoint whose predictions are closest to an n-gram model of the training "
        "text. Across: how many doublings later it comes with the longer warm-up; 1 is twice as late.",
        "The dashed tick is the delay expected while the rate rises if only the sum of learning rates mattered.",
        "The grey cross is how far this stage of one seed is from that of another seed with the same warm-up.",
    ),
    method=_METHOD,
    tables=(STAGES_BY_WARMUP.name,),
    findings=("time:T19",),
    draw=_stages,
)
WARMUPS = Section(
    id="warmups",
    short="Warm-up",
    title="Do the stages of learning follow the learning rate?",
    lead="The same training runs with a longer warm-up: a stage that comes after more updates may still come at the "
    "same sum of rates.",
    names=names_of([STAGES]),
)


def warmups_section(tables: ModelTables) -> Section | None:
    """The section, or None if no two runs differ only in their warm-up."""
    found = timed_stages(tables)
    figure = None if found is None else STAGES.of(found)
    return None if figure is None else replace(WARMUPS, figures=[figure])
