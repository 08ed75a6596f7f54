"""What claims read of tables over training.

Times, ranks and sets have no bootstrap over sentences: their intervals come from seeds alone.
"""

from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from infoflow.results import Spec

from ._model_group import TRANSLATION, Absent
from ._table import Reading, SeedRows, Table, exact, together

_SETTLED_SIZE = 0.9  # of the last checkpoint's set
INDUCTION_CURVE = "induction, best head"
FIRST_TOKEN_CURVE = "attention to the first token, mean of heads"
GAIN = "repeat_gain"
"""The gain in context that short sentences can show."""
_BEGUN = 0.1  # of the training: about the end of a warm-up


def prunable(order: str) -> Reading:
    """Share of the heads that could go at each update, in one order."""
    table = Table("prunable_by_update", TRANSLATION, needs=("update", "order", "replicates"), course=True)
    return table.where(order=order, kind="all").reduce(_by_update)


def settling_order(objective: Spec, kind: str, number: str = "time") -> Reading:
    """Kendall's tau of depth and the time of settling, over states, or over blocks from the second on."""
    table = Table("convergence_time", objective, needs=("layer",), number=number)
    return table.where(kind=kind, reference="final", similarity="cka").reduce(_tau, first=int(kind == "block"))


def settled_share(objective: Spec, share: float, reference: str = "final", number: str = "value") -> Reading:
    """Mean over layers of the share of the way to the reference that is done after a share of the updates.

    `number="null"`: of noise as large as what is left of the way.
    """
    needs = ("layer", "update", "progress")
    table = Table("convergence", objective, needs=needs, number=number, course=True)
    chosen = table.where(kind="state", reference=reference, similarity="cka")
    return chosen.reduce(_way_done, share=share)


def role_sets(objective: Spec, column: str = "jaccard_previous") -> Reading:
    """Of roles that two heads hold or more, once their number has come near the last one: (spread of the number as a
    share of the last, overlap with the checkpoint before, the same over that of random sets); means over roles.
    """
    needs = ("kind", "role", "update", "size", "expected_previous")
    return Table("role_turnover", objective, needs=needs, number=column, course=True).reduce(_turnover)


def lower_more_alike(objective: Spec, *, at_start: bool = False) -> Reading:
    """Share of the checkpoints after the warm-up at which state 1 is more like another seed's than the last one is;
    and the number of these checkpoints."""
    table = Table("convergence", objective, needs=("layer", "update", "progress"), course=True)
    chosen = table.where(kind="state", reference="other-seed", similarity="cka")
    return chosen.reduce(_lower_more_alike, at_start=at_start)


def ngram_minima(objective: Spec, number: str = "value") -> Reading:
    """Doublings from the minimum of KL(Q1||P) to that of Q2, from that to Q3's, and by how much the divergences from Q1
    and Q2 rise after their minima, in nats.
    """
    needs = ("order", "update", "replicates")
    table = Table("ngram_agreement_over_training", objective, needs=needs, number=number, course=True)
    return table.where(measure="kl_from_ngram", context="before").reduce(_minima)


def at_once(objective: Spec, gain: str, other: str = INDUCTION_CURVE) -> Reading:
    """Whether both curves of `phases` come abruptly (1 or 0), and how many doublings lie between their middles."""
    return Table("phases", objective, needs=("curve", "verdict"), number="t50").reduce(_at_once, gain=gain, other=other)


def doublings_between(objective: Spec, first: str, second: str) -> Reading:
    """How many doublings after the middle of one curve of `phases` that of another comes."""
    return Table("phases", objective, needs=("curve",), number="t50").reduce(_doublings, first=first, second=second)


def gain_within(objective: Spec, *, elsewhere: bool = False) -> Reading:
    """Share of the change of the gain that falls between t10 and t90 of induction; or, of windows as many doublings
    wide that do not overlap with that one, the largest share.
    """
    phases = Table("phases", objective, needs=("curve", "t10", "t90"), number="t50")
    gains = Table("in_context_learning_over_training", objective, needs=("update", "measure"), course=True)
    return together(_gain_within, phases, gains.where(measure=GAIN), elsewhere=elsewhere)


def language_first(number: str = "value") -> Reading:
    """Of greedy translations: the highest score under bigrams of the target language, above the references', before the
    middle of chrF's rise; doublings of updates from its maximum to that of the score under 5-grams.
    """
    return _stages("measure", "n", "rank_bin").reduce(_language_first, number=number)


def order_last(number: str = "value") -> Reading:
    """Movement of the order of words after chrF has come to nine tenths of its end, and over the last half of the
    updates, each as a share of the range that the order has over the training.
    """
    return _stages("measure", "rank_bin", "progress").reduce(_order_last, number=number)


def _stages(*needs: str) -> Table:
    name = "translation_stages_over_training"
    return Table(name, TRANSLATION, needs=("update", "replicates", *needs), course=True)


def _stage_curve(rows: SeedRows, measure: str, n: int = -1, number: str = "value") -> tuple[np.ndarray, np.ndarray]:
    """Updates, and the numbers of a measure at them, (1 + R, update); of a number without replicates (1, update)."""
    frame = rows.frame[(rows.frame["measure"] == measure) & (rows.frame["rank_bin"] == "")]
    frame = frame[frame["n"] == n] if measure == "lm_score" else frame
    frame = frame[frame["update"] > 0].sort_values("update")
    if len(frame) < 4 or not np.isfinite(frame[number].to_numpy(float)).all():
        raise Absent(f"{measure} was not measured at four checkpoints, or is not defined at one")
    return frame["update"].to_numpy(float), SeedRows(frame, number).numbers


def _middle(updates: np.ndarray, curve: np.ndarray, share: float = 0.5) -> int:
    """Index of the checkpoint from which on the curve stays beyond a share of its way."""
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
    return _with_replicates(np.stack([two[:, :middle].max(axis=1), later], axis=1))


def _order_last(rows: SeedRows, number: str) -> np.ndarray:
    updates, quality = _stage_curve(rows, "chrf")
    when, order = _stage_curve(rows, "frs_a", number=number)
    spread = np.ptp(order, axis=1)
    late = updates[_middle(updates, quality[0], 0.9)]
    if not (spread > 0).all():
        return exact([0.0, 0.0])
    halfway = np.abs(when - updates[-1] / 2).argmin()
    moved = [np.ptp(order[:, when >= late], axis=1), np.abs(order[:, -1] - order[:, halfway])]
    return _with_replicates(np.stack(moved, axis=1) / spread[:, None])


def _with_replicates(numbers: np.ndarray) -> np.ndarray:
    """Baselines have none."""
    return numbers if len(numbers) > 1 else exact(numbers[0])


def divergence_left(objective: Spec, share: float, clock: str = "progress") -> Reading:
    """KL(p_T||p_t) after a share of the updates, or of the sum of the learning rates, as a share of that at step 0."""
    table = Table("prediction_divergence_over_training", objective, needs=("update", "replicates", clock), course=True)
    return table.where(position=-1).reduce(_divergence_left, share=share, clock=clock)


def source_dip(number: str = "value", rule: int = 0) -> Reading:
    """How far the share of the source falls below its start and its end: by the first or the second rule of relevance
    that was taken; mean over the steps of the decoder after its first.
    """
    needs = ("rule", "update", "replicates", "explained")
    table = Table("source_contribution_over_training", TRANSLATION, needs=needs, number=number, course=True)
    return table.where(measure="share", position=-1).reduce(_dip, rule=rule)


def rank_course(objective: Spec, number: str = "value") -> Reading:
    """Of the effective rank of the last states: its fall from step 0 to a minimum, the rise from there to a later
    maximum, and the fall from that to the end, in ln; of all pairs of a minimum and a maximum between the ends the one
    whose least move is largest.

    `number="noise"`: of step 0 alone, resampled as often as there are checkpoints.
    """
    needs = ("layer", "update", "replicates")
    column = "value" if number == "noise" else number
    table = Table("effective_rank_over_training", objective, needs=needs, number=column, course=True)
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
        raise Absent("the share of the source was measured by one rule alone")
    own = rows.frame[rows.frame["rule"] == rules[rule]]
    numbers = SeedRows(own.sort_values("update"), rows.number).numbers
    if numbers.shape[1] < 4:
        raise Absent("the share of the source was measured at fewer than four checkpoints")
    lowest = numbers[:, 1:-1].min(axis=1)
    return _with_replicates((np.minimum(numbers[:, 0], numbers[:, -1]) - lowest)[:, None])


def _minima(rows: SeedRows) -> np.ndarray:
    found = {}
    for order, own in rows.at(rows.frame["update"] > 0).groups("order"):
        ordered = SeedRows(own.frame.sort_values("update"), own.number)
        numbers, logs = ordered.numbers, np.log2(ordered.frame["update"].to_numpy(float))
        found[int(order)] = logs[numbers.argmin(axis=1)], numbers[:, -1] - numbers.min(axis=1)
    if not {1, 2, 3} <= found.keys():
        raise Absent("divergences from unigrams, bigrams and trigrams are needed")
    one, two, three = (found[order] for order in (1, 2, 3))
    return _with_replicates(np.stack([two[0] - one[0], three[0] - two[0], one[1], two[1]], axis=1))


def _curve_of(rows: SeedRows, name: str) -> pd.Series:
    own = rows.frame[rows.frame["curve"] == name]
    if len(own) != 1 or not np.isfinite(own[rows.number].iloc[0]):
        raise Absent(f"{name} does not change over training, or was not measured at eight checkpoints")
    return own.iloc[0]


def _at_once(rows: SeedRows, gain: str, other: str) -> np.ndarray:
    one, two = _curve_of(rows, gain), _curve_of(rows, other)
    abrupt = float(one["verdict"] == two["verdict"] == "abrupt")
    return exact([abrupt, abs(np.log2(one["t50"] / two["t50"]))])


def _doublings(rows: SeedRows, first: str, second: str) -> np.ndarray:
    return exact([np.log2(_curve_of(rows, second)["t50"] / _curve_of(rows, first)["t50"])])


def _gain_within(phases: SeedRows, gains: SeedRows, elsewhere: bool) -> np.ndarray:
    found = _curve_of(phases, INDUCTION_CURVE)
    curve = gains.frame[gains.frame["update"] > 0].sort_values("update")
    logs, values = np.log2(curve["update"].to_numpy(float)), curve[gains.number].to_numpy(float)
    low, high = np.log2(found["t10"]), np.log2(found["t90"])

    def share(start: float) -> float:
        ends = np.interp([start, start + high - low], logs, values)
        return float((ends[1] - ends[0]) / (values[-1] - values[0]))

    if not elsewhere:
        return exact([share(low)])
    starts = np.linspace(logs[0], logs[-1] - (high - low), 200) if logs[-1] - logs[0] > high - low else np.array([])
    others = [share(start) for start in starts if start + high - low <= low or start >= high]
    if not others:
        raise Absent("no window as wide lies outside the one of induction")
    return exact([max(others)])


def _by_update(rows: SeedRows) -> np.ndarray:
    return SeedRows(rows.frame.sort_values("update"), rows.number).numbers


def _tau(rows: SeedRows, first: int) -> np.ndarray:
    frame = rows.frame[rows.frame["layer"] >= first].dropna(subset=[rows.number])
    if len(frame) < 3:
        raise Absent("fewer than three layers have a time of settling")
    if len(set(frame[rows.number])) == 1:  # all between the same two checkpoints
        return exact([0.0])
    return exact([kendalltau(frame["layer"], frame[rows.number]).statistic])


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
        raise Absent("no layer has a way to go, or step 0 was not measured")
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
