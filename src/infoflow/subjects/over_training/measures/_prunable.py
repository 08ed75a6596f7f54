"""How many heads could be removed at each checkpoint, and whether they are the same ones."""

# R row of an estimate: the value, then its replicates

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.heads import HEAD_IMPORTANCE, HEAD_PRUNING_CURVE, removable
from infoflow.results import KEYS, TASK_SCORES, Column, TableSchema
from infoflow.training import CLOCKS, checkpoint_steps

_LEAST_GAIN = 0.05  # nats over unigrams: an untrained model loses nothing with its heads
_ALLOWED = 0.1  # of the gain
_RECIPE = ["objective", "variant", "architecture", "start"]
_HEAD = ["stack", "kind", "layer", "head"]
_ORDERS = ("importance", "random")

PRUNABLE_BY_UPDATE = TableSchema(
    name="prunable_by_update",
    version=1,
    description="Largest share of heads that can be ablated in one order while 90 % of the model's gain over unigrams "
    "stays, at the first checkpoint at which all seeds gain .05 nats and at the eighths of the training after it.",
    over_training=True,
    made_by='a plan with a schedule in [checkpoints] and heavy = ["head_pruning_curve"] makes it',
    columns=(
        *KEYS,
        *CLOCKS,
        Column(name="order", dtype="string", unit="", description="importance, or random (mean of its draws)"),
        Column(name="kind", dtype="string", unit="", description="which heads may go: all"),
        Column(name="value", dtype="float64", unit="share", description="of the heads"),
        Column(name="replicates", dtype="list<float64>", unit="share", description="over the choice of sentences"),
        Column(
            name="mask_previous",
            dtype="float64",
            unit="share",
            description="of the heads in the less important half, those that were not in it at the row before; NaN: no "
            "such row, another order, or importances were not measured",
        ),
        Column(name="mask_final", dtype="float64", unit="share", description="the same against the last row"),
    ),
)


def prunable_by_update(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`PRUNABLE_BY_UPDATE` for all models of a run.

    Args:
        tables: By the name of the measure's table, rows of checkpoints with `KEYS` and `CLOCKS`: head_pruning_curve,
            task_scores, and, for the masks, head_importance.
    """
    rows: list[dict[str, Any]] = []
    curves, scores = tables.get(HEAD_PRUNING_CURVE.name), tables.get(TASK_SCORES.name)
    if curves is not None and scores is not None:
        curves = curves[(curves["kind"] == "all") & (curves["metric"] == "loss")]
        unigrams = scores[(scores["metric"] == "loss") & (scores["split"] == "test")]
        base = {(row.model, row.update): row.baseline for row in unigrams.itertuples()}
        for _, own in curves.groupby(_RECIPE, sort=False):
            rows += _rows(own, base, tables.get(HEAD_IMPORTANCE.name))
    return PRUNABLE_BY_UPDATE.conform(pd.DataFrame(rows, columns=PRUNABLE_BY_UPDATE.column_names))


def _rows(
    curves: pd.DataFrame, unigrams: Mapping[tuple[str, int], float], importance: pd.DataFrame | None
) -> Iterator[dict[str, Any]]:
    """All seeds of one objective, at the same updates."""
    updates = _updates(curves, unigrams)
    for model, own in curves.groupby("model", sort=False):
        masks = _masks(importance, str(model), updates)
        for update in updates:
            here = own[own["update"] == update]
            loss = _numbers(here[(here["removed"] == 0)].iloc[0])
            allowed = _ALLOWED * (unigrams[str(model), update] - loss)
            for order in _ORDERS:
                draws = [
                    removable(*_costs(draw, loss, allowed)) for _, draw in here[here["order"] == order].groupby("draw")
                ]
                if draws:
                    share = np.mean(draws, axis=0)
                    clock = here.iloc[0][[column.name for column in (*KEYS, *CLOCKS)]].to_dict()
                    found = {"order": order, "kind": "all", "value": float(share[0]), "replicates": share[1:].tolist()}
                    yield {**clock, **found, **(masks[update] if order == "importance" else _NO_MASK)}


def _updates(curves: pd.DataFrame, unigrams: Mapping[tuple[str, int], float]) -> list[int]:
    """The first update with a gain in all seeds, then the measured updates nearest to the eighths of the training."""
    whole = curves[curves["removed"] == 0].drop_duplicates(["model", "update"])
    gains: dict[int, list[float]] = {}
    for row in whole.itertuples():
        gains.setdefault(int(row.update), []).append(unigrams.get((row.model, row.update), np.nan) - row.value)
    seeds = whole["model"].nunique()
    shared = sorted(update for update, found in gains.items() if len(found) == seeds)
    learned = [update for update in shared if min(gains[update]) >= _LEAST_GAIN]
    if not learned:
        return []
    later = np.array([update for update in shared if update >= learned[0]])
    eighths = [step for step in checkpoint_steps("linear:8", int(later[-1])) if step > learned[0]]
    nearest = {int(later[np.argmin(np.abs(later - step))]) for step in eighths}
    return sorted({learned[0], *nearest})


def _costs(
    draw: pd.DataFrame, loss_R: Float[np.ndarray, " R"], allowed_R: Float[np.ndarray, " R"]
) -> tuple[np.ndarray, np.ndarray]:
    """Shares removed, rising, and the cost of each in units of the allowed cost, (R, share)."""
    ordered = draw[draw["removed"] > 0].sort_values("removed")
    losses = np.stack([_numbers(row) for _, row in ordered.iterrows()], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.where(allowed_R[:, None] > 0, (losses - loss_R[:, None]) / allowed_R[:, None], np.inf)
    return ordered["removed"].to_numpy(float), costs


def _numbers(row: pd.Series) -> Float[np.ndarray, " R"]:
    return np.concatenate([[row["value"]], np.asarray(row["replicates"], dtype=float)])


_NO_MASK = {"mask_previous": float("nan"), "mask_final": float("nan")}


def _masks(importance: pd.DataFrame | None, model: str, updates: list[int]) -> dict[int, dict[str, float]]:
    """By update, how much its less important half of the heads differs from that of other updates."""
    halves: dict[int, set] = {}
    if importance is not None:
        own = importance[(importance["model"] == model) & (importance["convention"] == "paper")]
        for update in updates:
            rows = own[own["update"] == update].sort_values("value", kind="stable")
            halves[update] = set(rows[_HEAD].head(len(rows) // 2).itertuples(index=False, name=None))
    found = {update: dict(_NO_MASK) for update in updates}
    if any(halves.values()):
        for before, update in pairwise(updates):
            found[update]["mask_previous"] = _differ(halves[update], halves[before])
        for update in updates:
            found[update]["mask_final"] = _differ(halves[update], halves[updates[-1]])
    return found


def _differ(one: set, other: set) -> float:
    return len(one - other) / len(one) if one and other else float("nan")
