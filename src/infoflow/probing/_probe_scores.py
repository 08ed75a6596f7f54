"""What probes got right: accuracy, macro-averaged F1, selectivity; with the spread of seeds and intervals."""

# L blocks, S seed, N example, B bootstrap block, C class, R replicate

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from infoflow.foundation import NUM_BLOCKS, block_of, replicate_weights
from infoflow.results import estimate, ratio_estimate

Words = Literal["all", "seen", "unseen"]
WORDS: tuple[Words, ...] = ("all", "seen", "unseen")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbePredictions:
    """What probes of several seeds said about the test part, for one set of labels."""

    said: Int[np.ndarray, "layer seed example"]
    wanted: Int[np.ndarray, "seed example"]
    majority: Int[np.ndarray, " seed"]
    """The most frequent training label."""
    taught: Bool[np.ndarray, "seed example"]
    """Whether the training part has the wanted label at all; else it counts as an error."""
    blocks: Int[np.ndarray, " example"]
    """Bootstrap block of each example's sentence."""
    seen: Bool[np.ndarray, " example"]
    """Whether the training part has the example's type."""

    def among(self, words: Words) -> Bool[np.ndarray, " example"]:
        return np.ones_like(self.seen) if words == "all" else self.seen == (words == "seen")

    def accuracy(self, layer: int, words: Words) -> dict[str, Any]:
        """Share of these examples that the probes of a layer get right; the baseline is the majority class."""
        among = self.among(words)
        right = (self.said[layer] == self.wanted)[:, among]
        guessed = float((self.majority[:, None] == self.wanted)[:, among].mean())
        return {**share_right(right, self.blocks[among], guessed), "untaught": self._untaught(among)}

    def macro_f1(self, layer: int) -> dict[str, Any]:
        r"""F1 of each class in the test part, averaged over these classes alike.

        $$ F_1 = \frac{1}{|C|} \sum_{c \in C} \frac{2\, tp_c}{2\, tp_c + fp_c + fn_c} $$
        """
        seeds = [_f1(said, wanted, self.blocks) for said, wanted in zip(self.said[layer], self.wanted, strict=True)]
        values = np.array([value for value, _ in seeds])
        guesses = np.broadcast_to(self.majority[:, None], self.wanted.shape)
        guessed = [_f1(said, wanted, self.blocks)[0] for said, wanted in zip(guesses, self.wanted, strict=True)]
        replicates = np.mean([replicates for _, replicates in seeds], axis=0)
        units, num = len(np.unique(self.blocks)), len(self.blocks)
        row = estimate(float(values.mean()), replicates, float(np.mean(guessed)), num, scale="share", units=units)
        return {**row, **over_seeds(values), "untaught": self._untaught(self.among("all"))}

    def _untaught(self, among: np.ndarray) -> int:
        return round(float((~self.taught[:, among]).sum(1).mean()))


def share_right(
    right: Bool[np.ndarray, "seed example"], blocks: Int[np.ndarray, " example"], baseline: float
) -> dict[str, Any]:
    """The columns of an accuracy, averaged over seeds."""
    hits = np.bincount(blocks, weights=right.mean(0), minlength=NUM_BLOCKS)
    count = np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64)
    units = int(np.count_nonzero(count))
    return {**ratio_estimate(hits, count, baseline, scale="share"), **over_seeds(right.mean(1)), "units": units}


def over_seeds(values: Float[np.ndarray, " seed"]) -> dict[str, Any]:
    """Spread of the seeds' values: their standard deviation, NaN of one seed."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return {"seed_values": values, "seed_sd": spread, "seeds": len(values)}


def difference(task: dict[str, Any], control: dict[str, Any]) -> dict[str, Any]:
    """The columns of task − control; their replicates are paired, since the same sentences are drawn for both."""
    row = estimate(
        task["value"] - control["value"],
        np.asarray(task["replicates"]) - np.asarray(control["replicates"]),
        task["baseline"] - control["baseline"],
        task["count"],
        units=task["units"],
    )
    return {**row, "untaught": task.get("untaught", 0)}


def score_rows(task: ProbePredictions, control: ProbePredictions | None) -> Iterator[dict[str, Any]]:
    """All rows of one problem: layer by layer, over all words and those seen or not in training."""
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
                row |= over_seeds(rows["task"]["seed_values"] - rows["control"]["seed_values"])
                yield {"layer": layer, "labels": "task", "words": words, "metric": "selectivity", **_tidy(row)}


def _tidy(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in ("seed_values", "units")}


def _f1(said: np.ndarray, wanted: np.ndarray, blocks: np.ndarray) -> tuple[float, np.ndarray]:
    """Macro-averaged F1, and its replicates; a class that a replicate does not draw is not averaged there."""
    classes, wanted = np.unique(wanted, return_inverse=True)
    place = np.searchsorted(classes, said).clip(max=len(classes) - 1)
    place = np.where(classes[place] == said, place, len(classes))  # one column for all that the test part lacks
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
    """Accuracy on a task beside that on its control."""

    accuracy: float
    control: float
    value: float
    """Their difference."""
    low: float
    high: float
    """Of the 95 % interval of the difference, over sentences."""


def selectivity(
    right: Bool[np.ndarray, "*seed example"],
    control_right: Bool[np.ndarray, "*control_seed control_example"],
    sentences: Int[np.ndarray, " example"],
    control_sentences: Int[np.ndarray, " control_example"] | None = None,
) -> Selectivity:
    r"""How much better a probe is at a task than at labels that word types got by lot.

    $$ \text{selectivity} = \text{accuracy}(\text{task}) - \text{accuracy}(\text{control}) $$

    The interval is paired: both accuracies are taken on the same sentences. Of several seeds it is that of their mean.

    Args:
        right: Which test examples the probe of the task gets right; of several seeds, a row for each.
        control_right: The same of the control's probe.
        sentences: The sentence of each example: `Corpus.content_ids`, or any numbers that tell sentences apart.
        control_sentences: Where the control asks about other examples, theirs.

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
