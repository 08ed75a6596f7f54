"""Tables of heads over training: when they gain and lose roles, and how many could be removed."""

# R row of an estimate: the value, then its replicates

from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.heads import (
    HEAD_IMPORTANCE,
    HEAD_PRUNING_CURVE,
    HEAD_ROLES,
    RoleEvents,
    by_chance,
    expected_jaccard,
    head_roles,
    removable,
    role_events,
)
from infoflow.results import KEYS, TASK_SCORES, Column, TableSchema
from infoflow.training import CLOCKS, checkpoint_steps, of_whole_course

_PLACE = ("stack", "kind", "role")
_HEAD_PLACE = [column for column in HEAD_ROLES.columns if column.name in ("stack", "kind", "layer", "head", "role")]

HEAD_ROLE_EVENTS = TableSchema(
    name="head_role_events",
    version=2,
    description="Heads that take on or lose a role. A birth is the first of two consecutive checkpoints at which a "
    "head holds it, a death the first of two at which the head does not; roles held before training are `initial`. "
    "The roles are those of head_roles: they depend on thresholds, and at every checkpoint heads are chosen on some "
    "sentences and tested on others. The rank correlations of role_turnover have no thresholds.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        *_HEAD_PLACE,
        Column("event", "string", "", "initial, birth or death"),
        Column("before", "int64", "updates", "the last checkpoint before the event"),
        Column("after", "int64", "updates", "the first checkpoint after the event"),
        Column("open", "bool", "", "whether only the last checkpoint shows the event"),
        Column("flickers", "int64", "", "changes of this head that do not count as events"),
    ),
)
ROLE_TURNOVER = TableSchema(
    name="role_turnover",
    version=2,
    description="The heads that hold a role at each checkpoint: how many there are, and how much they overlap with "
    "those at the previous and the last checkpoint; the control is the overlap of two random sets of those sizes.",
    over_training=True,
    made_by="a plan with a schedule in [checkpoints] makes it",
    columns=(
        *KEYS,
        *CLOCKS,
        *(column for column in _HEAD_PLACE if column.name in _PLACE),
        Column("size", "int64", "heads", "heads that hold the role"),
        Column(
            "by_chance",
            "float64",
            "heads",
            "at most this many of these heads hold it by chance: 2.5 % of the heads chosen, see `head_roles`",
        ),
        Column("heads", "int64", "heads", "heads that could hold the role"),
        Column("jaccard_previous", "float64", "1", "overlap with the previous checkpoint; NaN: none"),
        Column("expected_previous", "float64", "1", "overlap of random sets of these sizes"),
        Column("jaccard_final", "float64", "1", "overlap with the last checkpoint"),
        Column("expected", "float64", "1", "overlap of random sets of these sizes"),
        Column("rank_previous", "float64", "1", "Spearman correlation of all heads' scores with the previous ones"),
        Column("rank_final", "float64", "1", "Spearman correlation of all heads' scores with the last ones"),
    ),
)


def role_tables(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """`HEAD_ROLE_EVENTS` and `ROLE_TURNOVER` of one model, from its measures' tables; any may be absent."""
    clocks = _clocks(tables)
    at = {update: head_roles({n: f[f["update"] == update] for n, f in tables.items()}) for update in clocks}
    parts = [roles.assign(update=update) for update, roles in at.items() if len(roles)]
    if not parts:
        return {}
    every, model = pd.concat(parts, ignore_index=True), next(iter(clocks.values()))
    events, turnover = list[dict[str, Any]](), list[dict[str, Any]]()
    for values, own in every.groupby(list(_PLACE), sort=False):
        place = dict(zip(_PLACE, values, strict=True))
        scores, held = (
            own.pivot_table(index="update", columns=["layer", "head"], values=v) for v in ("value", "holds")
        )
        chance = {update: by_chance(at_update) for update, at_update in own.groupby("update")}
        held = held.fillna(0).astype(bool)
        for layer, head in held.columns[held.any(axis=0).to_numpy()]:
            found = role_events(held.index.to_numpy(), held[layer, head].to_numpy())
            where = {**of_whole_course(model), **place, "layer": layer, "head": head, "flickers": found.flickers}
            events += [{**where, **event} for event in _listed(found)]
        turnover += [
            {**clocks[update], **place, **row, "by_chance": chance[update]} for update, row in _turnover(scores, held)
        ]
    return {
        HEAD_ROLE_EVENTS.name: HEAD_ROLE_EVENTS.conform(pd.DataFrame(events, columns=HEAD_ROLE_EVENTS.column_names)),
        ROLE_TURNOVER.name: ROLE_TURNOVER.conform(pd.DataFrame(turnover, columns=ROLE_TURNOVER.column_names)),
    }


def _clocks(tables: Mapping[str, pd.DataFrame]) -> dict[int, dict[Hashable, Any]]:
    """The columns `KEYS` and `CLOCKS` by update, in order."""
    names = [column.name for column in (*KEYS, *CLOCKS)]
    frames = [frame[names] for frame in tables.values() if len(frame)]
    if not frames:
        return {}
    every = pd.concat(frames, ignore_index=True).drop_duplicates("update").sort_values("update")
    return {int(row["update"]): row for row in every.to_dict("records")}


def _listed(found: RoleEvents) -> list[dict[str, Any]]:
    initial = [{"event": "initial", "before": 0, "after": 0, "open": False}] if found.initial else []
    named = [*(("birth", one) for one in found.births), *(("death", one) for one in found.deaths)]
    later = [{"event": name, "before": one.before, "after": one.after, "open": one.open} for name, one in named]
    return initial + later


def _turnover(scores: pd.DataFrame, held: pd.DataFrame) -> Iterator[tuple[int, dict[str, Any]]]:
    """The columns of `ROLE_TURNOVER` for one role, by update; both frames are (update, head)."""
    sets, values, heads = held.to_numpy(), scores.reindex_like(held).to_numpy(dtype=float), held.shape[1]
    for at, update in enumerate(held.index):
        previous = _shared(sets[at], sets[at - 1]) if at else (np.nan, np.nan)
        final = _shared(sets[at], sets[-1])
        row = {
            "size": int(sets[at].sum()),
            "heads": heads,
            "jaccard_previous": previous[0],
            "expected_previous": previous[1],
            "jaccard_final": final[0],
            "expected": final[1],
            "rank_previous": _rank(values[at], values[at - 1]) if at else np.nan,
            "rank_final": _rank(values[at], values[-1]),
        }
        yield int(update), row


def _shared(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Jaccard index of two sets of heads (NaN if both are empty), and its expectation for random sets."""
    union = int((one | other).sum())
    jaccard = float((one & other).sum() / union) if union else np.nan
    return jaccard, expected_jaccard(len(one), int(one.sum()), int(other.sum()))


def _rank(one: np.ndarray, other: np.ndarray) -> float:
    from scipy.stats import spearmanr  # slow to import

    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < 3 or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return np.nan
    return float(spearmanr(one[known], other[known]).statistic)


# How many heads could be removed at each checkpoint, and whether they are the same ones.

_LEAST_GAIN = 0.05  # nats over unigrams: an untrained model loses nothing without its heads
_ALLOWED = 0.1  # share of the gain that may be lost
_RECIPE = ["objective", "variant", "architecture", "start"]
_HEAD = ["stack", "kind", "layer", "head"]
_ORDERS = ("importance", "random")

PRUNABLE_BY_UPDATE = TableSchema(
    name="prunable_by_update",
    description="Largest share of heads that can be ablated in one order while 90 % of the model's gain over unigrams "
    "is kept, at the first checkpoint at which all seeds gain .05 nats and at the eighths of the training after it.",
    over_training=True,
    made_by='a plan with a schedule in [checkpoints] and heavy = ["head_pruning_curve"] makes it',
    columns=(
        *KEYS,
        *CLOCKS,
        Column("order", "string", "", "importance, or random (mean of its draws)"),
        Column("kind", "string", "", "which heads may be removed: all"),
        Column("value", "float64", "share", "of the heads"),
        Column("replicates", "list<float64>", "share", "over the choice of sentences"),
        Column(
            "mask_previous",
            "float64",
            "share",
            "share of the heads in the less important half that were not in that half at the previous row; NaN: no "
            "such row, another order, or importances were not measured",
        ),
        Column("mask_final", "float64", "share", "share of these heads that are not in that half at the last row"),
    ),
)


def prunable_by_update(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """`PRUNABLE_BY_UPDATE` for all models of a run, from head_pruning_curve, task_scores and head_importance."""
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
    """The rows of all seeds of one objective, at the same updates."""
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
    """For each update, how much the less important half of the heads differs from that at the previous and last one."""
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
