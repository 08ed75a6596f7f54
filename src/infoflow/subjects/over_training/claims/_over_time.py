"""What claims read from tables over training.

Times, ranks and sets have no bootstrap over sentences, so their intervals come only from seeds.
"""

from itertools import combinations

import numpy as np
import pandas as pd

from infoflow.findings._model_group import TRANSLATION, Absent
from infoflow.findings._readings import EXACT, finished, limit, of_difference, of_extremum, with_reach
from infoflow.findings._table import Reading, SeedRows, Table, exact
from infoflow.results import Spec

from ..measures import (
    CONVERGENCE,
    CONVERGENCE_TIME,
    EFFECTIVE_RANK,
    NGRAM_AGREEMENT,
    PREDICTION_DIVERGENCE,
    PRUNABLE_BY_UPDATE,
    ROLE_TURNOVER,
    SOURCE_CONTRIBUTION,
    TRANSLATION_STAGES,
)

_SETTLED_SIZE = 0.9  # share of the size of the last checkpoint's set
_BEGUN = 0.1  # share of the training: about the end of a warm-up


def prunable(order: str) -> Reading:
    """Share of the heads that could be removed at each update, if they are removed in this order."""
    table = Table(PRUNABLE_BY_UPDATE.name, TRANSLATION, needs=("update", "order", "replicates"), course=True)
    return table.where(order=order, kind="all").reduce(_by_update)


def settling_order(objective: Spec, kind: str, number: str = "time") -> Reading:
    """Kendall's tau of depth and settling time, over states or over blocks from the second on, and its reach.

    Layers with equal times settled between the same two checkpoints, so their order is unknown.
    """
    table = Table(CONVERGENCE_TIME.name, objective, needs=("layer",), number=number)
    return table.where(kind=kind, reference="final", similarity="cka").reduce(_tau, first=int(kind == "block"))


def settled_share(objective: Spec, share: float, reference: str = "final", number: str = "value") -> Reading:
    """The share of the distance to the reference that is covered after a share of the updates, averaged over layers.

    With `number="null"`, the share is that of weights with noise as large as the remaining distance.
    """
    needs = ("layer", "update", "progress")
    table = Table(CONVERGENCE.name, objective, needs=needs, number=number, course=True)
    chosen = table.where(kind="state", reference=reference, similarity="cka")
    return chosen.reduce(_way_done, share=share)


def role_sets(objective: Spec, column: str = "jaccard_previous") -> Reading:
    """Stability of roles that two heads or more hold, once their number is near the final one.

    The columns are the spread of the number as a share of the final one, the overlap with the preceding checkpoint, and
    the ratio of this overlap to that of random sets; all are means over roles.
    """
    needs = ("kind", "role", "update", "size", "expected_previous")
    return Table(ROLE_TURNOVER.name, objective, needs=needs, number=column, course=True).reduce(_turnover)


def lower_more_alike(objective: Spec, *, at_start: bool = False) -> Reading:
    """Share of the checkpoints after the warm-up at which state 1 is closer to another seed's than the last state is.

    A second column is the number of these checkpoints. With `at_start`, step 0 is used instead.
    """
    table = Table(CONVERGENCE.name, objective, needs=("layer", "update", "progress"), course=True)
    chosen = table.where(kind="state", reference="other-seed", similarity="cka")
    return chosen.reduce(_lower_more_alike, at_start=at_start)


def ngram_minima(objective: Spec, number: str = "value") -> Reading:
    """Order of the n-gram minima of KL(Qn||P).

    The columns are the doublings from the minimum of Q1 to that of Q2 and from there to that of Q3, the rise of the
    divergences from Q1 and Q2 after their minima, in nats, and the reach of each. A minimum at the first or last
    checkpoint is only a bound.
    """
    needs = ("order", "update", "replicates")
    table = Table(NGRAM_AGREEMENT.at_checkpoints, objective, needs=needs, number=number, course=True)
    return table.where(measure="kl_from_ngram", context="before").reduce(_minima)


def language_first(number: str = "value") -> Reading:
    """Whether greedy translations become target language text before they become translations.

    The columns are the highest bigram score before the middle of chrF's rise, above that of the references; the
    doublings of updates from its maximum to that of the 5-gram score; and the reach of both.
    """
    return _stages("measure", "n", "rank_bin").reduce(_language_first, number=number)


def order_last(number: str = "value") -> Reading:
    """How much word order still moves late in training.

    The columns are the movement after chrF has reached nine tenths of its final value and over the last half of the
    updates, each as a share of the range of word order over the training, and the reach of the first.
    """
    return _stages("measure", "rank_bin", "progress").reduce(_order_last, number=number)


def _stages(*needs: str) -> Table:
    name = TRANSLATION_STAGES.at_checkpoints
    return Table(name, TRANSLATION, needs=("update", "replicates", *needs), course=True)


def _stage_curve(rows: SeedRows, measure: str, n: int = -1, number: str = "value") -> tuple[np.ndarray, np.ndarray]:
    """Return the updates and a measure's numbers at them, (1 + R, update), or (1, update) without replicates."""
    frame = rows.frame[(rows.frame["measure"] == measure) & (rows.frame["rank_bin"] == "")]
    frame = frame[frame["n"] == n] if measure == "lm_score" else frame
    frame = frame[frame["update"] > 0].sort_values("update")
    if len(frame) < 4 or not np.isfinite(frame[number].to_numpy(float)).all():
        raise Absent(f"{measure} was not measured at four checkpoints, or is not defined at one")
    return frame["update"].to_numpy(float), SeedRows(frame, number).numbers


def _middle(updates: np.ndarray, curve: np.ndarray, share: float = 0.5) -> int:
    """Index of the checkpoint from which the curve stays beyond a share of its total rise."""
    risen = (curve - curve[0]) / (curve[-1] - curve[0])
    below = np.flatnonzero(risen < share)
    return int(below[-1]) + 1 if len(below) else 0


def _language_first(rows: SeedRows, number: str) -> np.ndarray:
    updates, quality = _stage_curve(rows, "chrf")
    (_, two), (_, five) = (_stage_curve(rows, "lm_score", n, number) for n in (2, 5))
    middle = _middle(updates, quality[0])
    if middle == 0:
        raise Absent("chrF had risen before the first checkpoint")
    logs = np.log2(updates)
    later = logs[five.argmax(axis=1)] - logs[two.argmax(axis=1)]
    apart = of_difference(*(of_extremum(int(curve[0].argmax()), len(logs)) for curve in (five, two)))
    found = _with_replicates(np.stack([two[:, :middle].max(axis=1), later], axis=1))
    # If chrF is still rising, the middle comes later, and a higher score may precede it.
    return with_reach(found, (0.0, limit(not finished(quality))), apart)


def _order_last(rows: SeedRows, number: str) -> np.ndarray:
    updates, quality = _stage_curve(rows, "chrf")
    when, order = _stage_curve(rows, "frs_a", number=number)
    spread = np.ptp(order, axis=1)
    late = updates[_middle(updates, quality[0], 0.9)]
    if not (spread > 0).all():
        return exact([0.0, 0.0, *EXACT])
    halfway = np.abs(when - updates[-1] / 2).argmin()
    moved = [np.ptp(order[:, when >= late], axis=1), np.abs(order[:, -1] - order[:, halfway])]
    found = _with_replicates(np.stack(moved, axis=1) / spread[:, None])
    # If chrF is still rising, it reaches nine tenths later, and less movement follows.
    return with_reach(found, (limit(not finished(quality)), 0.0))


def _with_replicates(numbers: np.ndarray) -> np.ndarray:
    """Repeat numbers that have no replicates, such as baselines."""
    return numbers if len(numbers) > 1 else exact(numbers[0])


def divergence_left(objective: Spec, share: float, clock: str = "progress") -> Reading:
    """KL(p_T||p_t) after a share of the updates or of the summed learning rates, relative to that at step 0."""
    table = Table(PREDICTION_DIVERGENCE.at_checkpoints, objective, needs=("update", "replicates", clock), course=True)
    return table.where(position=-1).reduce(_divergence_left, share=share, clock=clock)


def source_dip(number: str = "value", rule: int = 0) -> Reading:
    """How far the source's share of the relevance falls below its first and its last value.

    It is measured by the first or second relevance rule in the table, averaged over decoder steps after the first.
    """
    needs = ("rule", "update", "replicates", "explained")
    table = Table(SOURCE_CONTRIBUTION.at_checkpoints, TRANSLATION, needs=needs, number=number, course=True)
    return table.where(measure="share", position=-1).reduce(_dip, rule=rule)


def rank_course(objective: Spec, number: str = "value") -> Reading:
    """How the effective rank of the last states falls, rises and falls again.

    The columns are, in ln, its fall from step 0 to a minimum, the rise from there to a later maximum, and the fall from
    that to the end. The minimum and maximum are the pair for which the smallest of these changes is largest.

    `number="noise"` is a control: step 0 only, resampled as often as there are checkpoints.
    """
    needs = ("layer", "update", "replicates")
    column = "value" if number == "noise" else number
    table = Table(EFFECTIVE_RANK.at_checkpoints, objective, needs=needs, number=column, course=True)
    return table.reduce(_rank_course, noise=number == "noise")


def _rank_course(rows: SeedRows, noise: bool) -> np.ndarray:
    last = rows.at(rows.frame["layer"] == rows.frame["layer"].max())
    ordered = SeedRows(last.frame.sort_values("update"), rows.number)
    numbers, updates = ordered.numbers, ordered.column("update")
    if updates[0] != 0 or len(updates) < 4 or not np.isfinite(numbers[0]).all():
        raise Absent("step 0 and three checkpoints after it are needed, each with states that differ")
    logs = np.log(np.resize(numbers[1:, 0], (1, len(updates))) if noise else numbers)

    def moves(low: int, high: int) -> np.ndarray:
        return logs[:, [0, high, high]] - logs[:, [low, low, -1]]

    pairs = list(combinations(range(1, len(updates) - 1), 2))
    best = max(pairs, key=lambda pair: moves(*pair)[0].min())
    return _with_replicates(moves(*best))


def _divergence_left(rows: SeedRows, share: float, clock: str) -> np.ndarray:
    ordered = SeedRows(rows.frame.sort_values("update"), rows.number)
    numbers, when = ordered.numbers, ordered.frame[clock].to_numpy(float)
    if when[0] != 0 or not np.isfinite(when).all():
        raise Absent("step 0 was not measured, or the clock is not known")
    left = np.array([np.interp(share, when, row) for row in numbers])
    return _with_replicates((left / numbers[:, 0])[:, None])


def _dip(rows: SeedRows, rule: int) -> np.ndarray:
    rules = sorted(set(rows.frame["rule"]))
    if rule >= len(rules):
        raise Absent("the share of the source was measured by only one rule")
    own = rows.frame[rows.frame["rule"] == rules[rule]]
    numbers = SeedRows(own.sort_values("update"), rows.number).numbers
    if numbers.shape[1] < 4:
        raise Absent("the share of the source was measured at fewer than four checkpoints")
    lowest = numbers[:, 1:-1].min(axis=1)
    return _with_replicates((np.minimum(numbers[:, 0], numbers[:, -1]) - lowest)[:, None])


def _minima(rows: SeedRows) -> np.ndarray:
    found, bounds = {}, {}
    for order, own in rows.at(rows.frame["update"] > 0).groups("order"):
        ordered = SeedRows(own.frame.sort_values("update"), own.number)
        numbers, logs = ordered.numbers, np.log2(ordered.frame["update"].to_numpy(float))
        found[int(order)] = logs[numbers.argmin(axis=1)], numbers[:, -1] - numbers.min(axis=1)
        bounds[int(order)] = of_extremum(int(numbers[0].argmin()), len(logs))
    if not {1, 2, 3} <= found.keys():
        raise Absent("divergences from unigrams, bigrams and trigrams are needed")
    one, two, three = (found[order] for order in (1, 2, 3))
    numbers = _with_replicates(np.stack([two[0] - one[0], three[0] - two[0], one[1], two[1]], axis=1))
    apart = [of_difference(bounds[order + 1], bounds[order]) for order in (1, 2)]
    rises = [(0.0, limit(bounds[order].later)) for order in (1, 2)]  # a curve that falls to the end may rise after it
    return with_reach(numbers, *apart, *rises)


def _by_update(rows: SeedRows) -> np.ndarray:
    return SeedRows(rows.frame.sort_values("update"), rows.number).numbers


def _tau(rows: SeedRows, first: int) -> np.ndarray:
    from scipy.stats import kendalltau  # slow to import

    frame = rows.frame[rows.frame["layer"] >= first].dropna(subset=[rows.number])
    if len(frame) < 3:
        raise Absent("fewer than three layers have a time of settling")
    times = frame[rows.number].to_numpy(float)
    tau = kendalltau(frame["layer"], times).statistic if len(set(times)) > 1 else 0.0
    signs = np.sign(np.subtract.outer(times, times) * np.subtract.outer(*[frame["layer"].to_numpy(float)] * 2))
    ordered = signs[np.triu_indices(len(times), 1)]
    settled, tied = ordered.sum() / len(ordered), (ordered == 0).mean()  # tau if tied pairs cancel each other
    return exact([tau, max(tau - settled + tied, 0.0), max(settled + tied - tau, 0.0)])


def _way_done(rows: SeedRows, share: float) -> np.ndarray:
    done = []
    for _, own in rows.frame.groupby("layer"):
        curve = own[own["update"] > 0].sort_values("update")
        start = own[own["update"] == 0][rows.number]
        if len(start) != 1 or not 1 - float(start.iloc[0]) >= 0.05:
            continue
        values = (curve[rows.number].to_numpy(float) - float(start.iloc[0])) / (1 - float(start.iloc[0]))
        done.append(np.interp(np.log2(share), np.log2(curve["progress"].to_numpy(float)), values))
    if not done:
        raise Absent("every layer is at its reference from the start, or step 0 was not measured")
    return exact([np.mean(done)])


def _turnover(rows: SeedRows) -> np.ndarray:
    parts = [_of_role(own.sort_values("update"), rows.number) for _, own in rows.frame.groupby(["kind", "role"])]
    kept = [part for part in parts if part is not None]
    if not kept:
        raise Absent("no role is held by two heads at the end and at three checkpoints before it")
    return exact(np.mean(kept, axis=0))


def _of_role(rows: pd.DataFrame, number: str) -> tuple[float, float, float] | None:
    sizes = rows["size"].to_numpy(float)
    below = np.flatnonzero(sizes < _SETTLED_SIZE * sizes[-1])
    later = rows.iloc[(below[-1] + 1 if len(below) else 0) :]
    if sizes[-1] < 2 or len(later) < 4:
        return None
    after = later.iloc[1:]
    overlap, chance = after[number].to_numpy(float), after["expected_previous"].to_numpy(float)
    return float(np.ptp(later["size"]) / sizes[-1]), float(np.mean(overlap)), float(np.mean(overlap / chance))


def _lower_more_alike(rows: SeedRows, at_start: bool) -> np.ndarray:
    grid = rows.frame.pivot_table(index="update", columns="layer", values=rows.number)
    progress = rows.frame.drop_duplicates("update").set_index("update")["progress"].reindex(grid.index)
    chosen = grid[(progress == 0) if at_start else (progress >= _BEGUN)]
    if chosen.empty or 1 not in chosen:
        raise Absent("no checkpoint after the warm-up was compared with another seed")
    return exact([float((chosen[1] > chosen[chosen.columns.max()]).mean()), len(chosen)])
