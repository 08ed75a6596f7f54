"""Scores of probes: accuracy, F1 and selectivity, with the spread over seeds and intervals."""

# L blocks, S seed, N example, B bootstrap block, C class, R replicate

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from infoflow.foundation import (
    NUM_BLOCKS,
    Interval,
    Scale,
    at_least_apart,
    at_least_each_class,
    block_effects,
    block_interval,
    block_of,
    block_sums,
    interval_over_seeds,
    replicate_weights,
)
from infoflow.results import Column, estimate

Labels = Shaped[np.ndarray, "*example"]


def micro_f1(predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()) -> float:
    r"""$2\,\mathrm{TP} / (\text{predicted} + \text{gold})$ over all labels except the ignored ones, from 0 to 1.

    With no ignored labels and one label per example this is the accuracy. Labels are numbers (examples,), or a mask of
    each example's labels, (examples, classes). NaN if no label counts.

    Source: [@tenney2019edge]: in coreference only the label "1" counts, in relations all but "no_relation".

    >>> micro_f1(np.array([1, 0, 1]), np.array([1, 1, 0]), ignored=[0])
    0.5
    """
    hits, named = f1_counts(predicted, gold, ignored)
    return float(2 * hits.sum() / named.sum()) if named.sum() else float("nan")


def f1_counts(
    predicted: np.ndarray, gold: np.ndarray, ignored: Sequence[int] = ()
) -> tuple[Float[np.ndarray, "*example"], Float[np.ndarray, "*example"]]:
    """True positives of each example, and its number of predicted plus gold labels; `gold` is broadcast."""
    if gold.dtype == bool:
        counted = np.ones(gold.shape[-1], dtype=bool)
        counted[list(ignored)] = False
        hits = (predicted & gold & counted).sum(-1)
        named = (predicted & counted).sum(-1) + (gold & counted).sum(-1)
    else:
        first, second = ~np.isin(predicted, list(ignored)), ~np.isin(gold, list(ignored))
        hits, named = (predicted == gold) & second, first.astype(int) + second
    return hits.astype(np.float64), named.astype(np.float64)


SEED_COLUMNS = (
    Column(
        "seed_sd", "float64", "as value", "standard deviation of the value over the probe's seeds; NaN for one seed"
    ),
    Column("seeds", "int64", "", "training runs of the probe; the value is their mean"),
)


def seed_estimate(
    values: Float[np.ndarray, " seed"],
    replicates: Float[np.ndarray, "seed replicate"],
    baseline: float,
    count: float,
    scale: Scale = "any",
    independent: float | None = None,
) -> dict[str, Any]:
    """Columns of `estimate_columns` and `SEED_COLUMNS`: the mean over seeds, and its interval over seeds and sentences.

    The interval comes from `interval_over_seeds`. If all answers of all seeds are right, its width follows from the
    number of answers.
    """
    replicates = np.where(np.isfinite(replicates), replicates, np.nan)
    value, sd, ends = math.nan, math.nan, Interval(math.nan, math.nan)
    if np.isfinite(values).all():
        value = float(values.mean())
        sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
        usable = replicates[:, np.isfinite(replicates).all(axis=0)]
        agree = count if independent is None else independent
        own = [
            block_interval(one, block_effects(one, drawn), scale=scale, count=agree)
            for one, drawn in zip(values.tolist(), replicates, strict=True)
        ]
        units = [(seed,) for seed in range(len(values))]
        ends = own[0] if len(own) == 1 else interval_over_seeds(units, values, usable, own, scale)
    mean = estimate(value, replicates.mean(axis=0), baseline, count, ends=ends)
    return mean | {"seed_sd": sd, "seeds": len(values)}


def with_still_sides(
    row: dict[str, Any], one: Mapping[str, Any], other: Mapping[str, Any], moved: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The columns of a difference of two shares, also valid if resampling does not change one of them.

    If all answers for one share are right, resampling does not show its uncertainty. The interval of the difference is
    then at least as wide as the intervals of both shares imply, see `at_least_apart`.
    """
    ends = Interval(row["low"], row["high"])
    if any(map(_still, moved)):
        ends = at_least_apart(ends, *((side["value"], Interval(side["low"], side["high"])) for side in (one, other)))
    return row | {"low": max(ends.low, -1.0), "high": min(ends.high, 1.0)}


def _still(drawn: np.ndarray) -> bool:
    """Whether no usable resample changes the value of any seed."""
    usable = drawn[:, np.isfinite(drawn).all(axis=0)]
    return bool(usable.size) and bool((usable == usable[:, :1]).all())


def replicated(sums: np.ndarray) -> np.ndarray:
    """Bootstrap replicates (replicates, ...) of sums over blocks (64, ...)."""
    return np.tensordot(replicate_weights(), sums, axes=1)


Words = Literal["all", "seen", "unseen"]
WORDS: tuple[Words, ...] = ("all", "seen", "unseen")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbePredictions:
    """Predictions of probes of several seeds on the test part, for one label set."""

    said: Int[np.ndarray, "layer seed example"]
    wanted: Int[np.ndarray, "seed example"]
    majority: Int[np.ndarray, " seed"]  # the most frequent training label
    taught: Bool[np.ndarray, "seed example"]
    """Whether the gold label occurs in the training part; if not, the example counts as an error."""
    blocks: Int[np.ndarray, " example"]  # bootstrap block of each example's sentence
    seen: Bool[np.ndarray, " example"]  # whether the example's type occurs in the training part

    def among(self, words: Words) -> Bool[np.ndarray, " example"]:
        return np.ones_like(self.seen) if words == "all" else self.seen == (words == "seen")

    def accuracy(self, layer: int, words: Words) -> dict[str, Any]:
        """Share of these examples that the probes of a layer predict correctly; the baseline is the majority class."""
        among = self.among(words)
        right = (self.said[layer] == self.wanted)[:, among]
        guessed = float((self.majority[:, None] == self.wanted)[:, among].mean())
        return {**share_right(right, self.blocks[among], guessed), "untaught": self._untaught(among)}

    def macro_f1(self, layer: int) -> dict[str, Any]:
        r"""Unweighted mean F1 over the classes of the test part.

        $$ F_1 = \frac{1}{|C|} \sum_{c \in C} \frac{2\, tp_c}{2\, tp_c + fp_c + fn_c} $$
        """
        pairs = list(zip(self.said[layer], self.wanted, strict=True))
        seeds = [_f1(said, wanted, self.blocks) for said, wanted in pairs]
        guesses = np.broadcast_to(self.majority[:, None], self.wanted.shape)
        guessed = [_f1(said, wanted, self.blocks)[0] for said, wanted in zip(guesses, self.wanted, strict=True)]
        values, drawn = np.array([value for value, _ in seeds]), np.stack([replicates for _, replicates in seeds])
        row = seed_estimate(values, drawn, float(np.mean(guessed)), len(self.blocks), "share")
        point = Interval(row["value"], row["value"])
        allowed = np.array([at_least_each_class(point, *_class_counts(*pair)) for pair in pairs]).mean(axis=0)
        row |= {"low": float(np.fmin(row["low"], allowed[0])), "high": float(np.fmax(row["high"], allowed[1]))}
        return {**row, "untaught": self._untaught(self.among("all"))}

    def _untaught(self, among: np.ndarray) -> int:
        return round(float((~self.taught[:, among]).sum(1).mean()))


def share_right(
    right: Bool[np.ndarray, "seed example"], blocks: Int[np.ndarray, " example"], baseline: float
) -> dict[str, Any]:
    """The columns of an accuracy, averaged over seeds."""
    values, drawn = right.mean(1), _drawn(right, blocks)
    row = seed_estimate(values, drawn, baseline, right.shape[1], "share")
    return {**row, "seed_values": values, "seed_replicates": drawn}


def _drawn(right: Bool[np.ndarray, "seed example"], blocks: Int[np.ndarray, " example"]) -> np.ndarray:
    """Replicates (seeds, replicates) of each seed's accuracy; NaN if no example is drawn."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = (
            replicated(block_sums(right.T * 1.0, blocks))
            / replicated(block_sums(np.ones(len(blocks)), blocks))[:, None]
        )
    return np.ascontiguousarray(shares.T)


def difference(task: dict[str, Any], control: dict[str, Any]) -> dict[str, Any]:
    """The columns of task − control; replicates are paired, since both draw the same sentences.

    If no draw changes one of the two (because all answers are right), the interval is at least Newcombe's.

    Source: [@newcombe1998].
    """
    sides = [(row["seed_values"], row["seed_replicates"]) for row in (task, control)]
    if len(sides[0][0]) != len(sides[1][0]):  # seeds cannot be paired
        sides = [(values.mean(keepdims=True), drawn.mean(0, keepdims=True)) for values, drawn in sides]
    values, drawn = (one - other for one, other in zip(*sides, strict=True))
    row = seed_estimate(values, drawn, task["baseline"] - control["baseline"], task["count"])
    row = with_still_sides(row, task, control, [side["seed_replicates"] for side in (task, control)])
    return {**row, "untaught": task.get("untaught", 0)}


def score_rows(task: ProbePredictions, control: ProbePredictions | None) -> Iterator[dict[str, Any]]:
    """All rows of one problem, layer by layer: for all words, and for words seen or unseen in training."""
    for layer in range(len(task.said)):
        facts = {"layer": layer, "labels": "task", "words": "all"}
        yield {**facts, "metric": "macro_f1", **_tidy(task.macro_f1(layer))}
        for words in WORDS:
            rows = {
                name: answers.accuracy(layer, words)
                for name, answers in (("task", task), ("control", control))
                if answers is not None and answers.among(words).any()
            }
            for name, row in rows.items():
                yield {"layer": layer, "labels": name, "words": words, "metric": "accuracy", **_tidy(row)}
            if len(rows) == 2:
                row = difference(rows["task"], rows["control"])
                yield {"layer": layer, "labels": "task", "words": words, "metric": "selectivity", **_tidy(row)}


def _tidy(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("seed_") or name == "seed_sd"}


def _class_counts(said: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each class of the test part, its true positives, and its true positives plus the number of predictions."""
    classes = np.unique(wanted)[:, None]
    return ((said == classes) & (wanted == classes)).sum(1), (said == classes).sum(1) + (wanted == classes).sum(1)


def _f1(said: np.ndarray, wanted: np.ndarray, blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """Macro-averaged F1 and its replicates; a replicate averages over the classes that it draws."""
    classes, wanted = np.unique(wanted, return_inverse=True)
    place = np.searchsorted(classes, said).clip(max=len(classes) - 1)
    place = np.where(classes[place] == said, place, len(classes))  # one column for all classes that the test part lacks
    size = len(classes) + 1

    def counted(of: np.ndarray, among: np.ndarray) -> np.ndarray:
        index = blocks[among] * size + of[among]
        return np.bincount(index, minlength=NUM_BLOCKS * size).reshape(NUM_BLOCKS, size)[:, :-1].astype(np.float64)

    hits = counted(wanted, place == wanted)
    sums = counted(place, np.ones_like(place, dtype=bool)), counted(wanted, np.ones_like(place, dtype=bool))
    weights = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    drawn, total = weights @ sums[1] > 0, weights @ (sums[0] + sums[1])
    scores = np.divide(2 * (weights @ hits), total, out=np.zeros_like(total), where=total > 0)
    means = (scores * drawn).sum(1) / np.maximum(drawn.sum(1), 1)
    return float(means[0]), means[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class Selectivity:
    """Accuracy on a task and on its control."""

    accuracy: float
    control: float
    value: float  # their difference
    low: float
    high: float  # upper end of the 95 % interval of the difference, over sentences and seeds


def selectivity(
    right: Bool[np.ndarray, "*seed example"],
    control_right: Bool[np.ndarray, "*control_seed control_example"],
    sentences: Int[np.ndarray, " example"],
    control_sentences: Int[np.ndarray, " control_example"] | None = None,
) -> Selectivity:
    r"""How much better a probe is at a task than at labels assigned to word types at random.

    $$ \text{selectivity} = \text{accuracy}(\text{task}) - \text{accuracy}(\text{control}) $$

    The interval is paired, since both accuracies use the same sentences. For several seeds it is the interval of their
    mean, over seeds and sentences.

    Args:
        right: Which test examples the task's probe predicts correctly; one row per seed for several seeds.
        control_right: The same for the control's probe.
        sentences: The sentence of each example: `Corpus.content_ids`, or any numbers that identify sentences.
        control_sentences: The control's sentences, if it uses other examples.

    >>> selectivity(np.array([True, True, True, False]), np.array([True, False, False, False]), np.arange(4)).value
    0.5

    Source: [@hewitt2019control].
    """
    ids = sentences if control_sentences is None else control_sentences
    task, control = (
        share_right(np.atleast_2d(each), block_of(of), float("nan"))
        for each, of in ((right, sentences), (control_right, ids))
    )
    row = difference(task, control)
    return Selectivity(
        accuracy=task["value"], control=control["value"], value=row["value"], low=row["low"], high=row["high"]
    )
