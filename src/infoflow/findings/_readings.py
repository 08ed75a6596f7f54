"""Readings that several claims share: probes, closed self-attention, end tasks, and times known only as bounds.

An event found at the first checkpoint may have happened at any earlier update, and a change that is still going on at
the last checkpoint may end at any later update. So the truth may lie below or above a number computed from such times.
A claim passes these distances to its condition (`Condition.reach`), and no verdict depends on the unknown side.

Readings return the two parts of `reach` (how far the truth may lie below and above; NaN if unlimited) as separate
numbers, since they differ between seeds. The mean over seeds is then the reach of the mean.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from infoflow.heads import ENCODER_CONTEXT, HEAD_COREFERENCE, Crossing, is_finished
from infoflow.representations import TAG_NEIGHBOURS
from infoflow.results import MATCH, PROBE_SCORES, Spec

from ._finding import Condition, Curves, Verdict, exceeds
from ._head_numbers import best_heads, heads, largest
from ._model_group import TRANSLATION, Absent
from ._table import Reading, SeedRows, Table, exact, one_number, together

# R bootstrap replicates, K layers or numbers
WHOLE = 1.0
"""The share of its training sentences that a probe uses, unless a claim is about a smaller share."""
TOKEN_TASKS = ("upos", "xpos", "ccg", "parent")
"""Tasks with a label per word; claims use the first of these tasks that a run has."""


def accuracy(
    objective: Spec, task: str | tuple[str, ...], labels: str = "task", metric: str = "accuracy", probe: str = "linear"
) -> Reading:
    """A probe's score over layers 0..L, on all words of the test part."""
    return probe_scores(objective, task, labels, metric, probe).by(first=0)


def probe_scores(
    objective: Spec, task: str | tuple[str, ...], labels: str, metric: str, probe: str, share: float = WHOLE
) -> Table:
    """The rows of `probe_scores` for one task and metric, on all words of the test part."""
    return Table(PROBE_SCORES.name, objective).where(
        task=task, probe=probe, labels=labels, words="all", metric=metric, share=share
    )


# Readings of self-attention: the share of what a model has learned that is lost if the attention is closed, so that
# each token attends only to itself.
#
# If a seed has models that were retrained with the attention closed, the shares come from them; otherwise the attention
# is closed only at test time.

ENCODER, DECODER = "encoder-self", "decoder-self"


def lost_share(kind: str, less: str = "") -> Reading:
    """The share lost if attention of this kind is closed, whether the model was retrained, and for how many updates.

    If the kind `less` is named, its share is subtracted. A retrained model counts as 1, any other as 0.
    """
    return _shares().reduce(_lost_share, kind=kind, less=less)


def untrained_share(kind: str, less: str = "") -> Reading:
    """Loss added by closing attention in the untrained model, as a share of what its trained twin learned."""
    changes = replace(_table("loss").where(retrained=0), trained=False)
    return together(_untrained_share, changes, _shares(), kind=kind, less=less)


def how_closed(numbers: np.ndarray) -> str:
    """How the attention was closed, in words, from rows of `lost_share`."""
    if numbers[0, 1] > 0:
        return f"closed in all blocks and the model trained further that way for {numbers[0, 2]:,.0f} updates"
    return "closed in all blocks at test time (no model was retrained; a plan with [context] on = true retrains models)"


def some_retrained(curves: Curves, verdict: Verdict) -> str | None:
    """Why the seeds cannot be compared (only some were retrained), or None."""
    if any(0 < numbers[0, 1] < 1 for numbers in curves.values()):
        return "some of its seeds were retrained and others were not: let the study run to its end"
    return None


def _table(metric: str) -> Table:
    return Table(ENCODER_CONTEXT.name, TRANSLATION, needs=("kind", "retrained")).where(which="all", metric=metric)


def _shares() -> Table:
    absent = f"encoder_context has no shares of a {TRANSLATION.name} model that knows more than frequencies"
    return replace(_table("share"), absent=absent)


def _lost_share(rows: SeedRows, kind: str, less: str) -> np.ndarray:
    kinds = [kind, less] if less else [kind]
    own = {one: _of(rows, one) for one in kinds}
    updates = max(set.intersection(*(set(one.frame["retrained"]) for one in own.values())))
    parts = [one_number(one.at(one.frame["retrained"] == updates)) for one in own.values()]
    return _numbers(parts, int(updates))


def _untrained_share(rows: SeedRows, shares: SeedRows, kind: str, less: str) -> np.ndarray:
    of_trained = _of(shares, kind)
    learned = of_trained.at(of_trained.frame["retrained"] == 0).column("baseline")[0]
    return _numbers([one_number(_of(rows, one)) / learned for one in ([kind, less] if less else [kind])], 0)


def _of(rows: SeedRows, kind: str) -> SeedRows:
    found = rows.at(rows.frame["kind"] == kind)
    if found.frame.empty:
        raise Absent(f"encoder_context has no rows of {kind} of a {TRANSLATION.name} model")
    return found


def _numbers(parts: list[np.ndarray], updates: int) -> np.ndarray:
    common = min(map(len, parts))
    share = parts[0][:common] - (parts[1][:common] if len(parts) > 1 else 0.0)
    return np.concatenate([share, np.full((common, 1), float(updates > 0)), np.full((common, 1), float(updates))], 1)


# Proxies for end tasks in claims about objectives, since no models are fine-tuned, and the costs of models.
#
# A probe without parameters checks whether the nearest occurrences of a token carry the same tag (syntactic category,
# part of speech, relation). For tasks on spans and on relations across a sentence, the proxy is the share of mentions
# from which the best head attends most to an antecedent. Both proxies examine the states and heads that the objectives
# produced, on unseen text that is the same for all.

PROBE = "share of the nearest occurrences of the same token that have the same tag, mean over tags, best layer"
STANDS_IN = f"End tasks are not trained: a probe stands in ({PROBE})."


def probe(objective: Spec, architecture: str = "", *, beyond_chance: bool = False) -> Reading:
    """The reading described by `PROBE`, with the layer selected on one half of the sentences and read on the other.

    With `beyond_chance`, the share of random neighbours is subtracted.
    """
    table = Table(TAG_NEIGHBOURS.name, objective, needs=("layer", "tag"), architecture=architecture)
    return table.reduce(_best_layer, beyond_chance=beyond_chance)


def coreference(objective: Spec) -> Reading:
    """Share of mentions from which the best head attends most to an antecedent."""
    return best_heads(heads(HEAD_COREFERENCE.name, objective, mention="all"))


def spans_and_words(new: Spec, old: Spec) -> dict[str, Reading]:
    of = {"new": new, "old": old}
    spans: dict[str, Reading] = {f"{which} spans": coreference(objective) for which, objective in of.items()}
    return spans | {f"{which} words": probe(objective) for which, objective in of.items()}


def spans_more_than_words(curves: Curves, which: str) -> list[Condition]:
    """State that the new objective exceeds the old one in coreference, and by more than it does in word tags."""
    spans, words = (curves[f"new {what}"] - curves[f"old {what}"] for what in ("spans", "words"))
    return [
        exceeds(f"{which}, coreference", spans, 0.0, "share"),
        exceeds("that gain minus the gain in tags of words", spans - words, 0.0, "share"),
    ]


def parameters(objective: Spec) -> Reading:
    return Table(MATCH.name, objective, number="measured_parameters").reduce(_exactly)


def operations(objective: Spec) -> Reading:
    return Table(MATCH.name, objective, number="flops").reduce(_exactly)


def _best_layer(rows: SeedRows, beyond_chance: bool) -> np.ndarray:
    rows = rows.at(rows.frame["layer"] >= 1)
    layers = [own for _, own in rows.groups("layer")]
    if not layers or len({tuple(sorted(own.frame["tag"])) for own in layers}) > 1:
        raise Absent("tag_neighbours lacks a tag at some layers")
    means_RL = np.stack([own.numbers.mean(axis=1) for own in layers], axis=1)
    if beyond_chance:
        means_RL = means_RL - np.array([own.column("baseline").mean() for own in layers])
    if not np.isfinite(means_RL[0]).all():
        raise Absent("tag_neighbours has no number at some layers")
    return largest(means_RL)


def _exactly(rows: SeedRows) -> np.ndarray:
    values = rows.column(rows.number)
    if len(values) != 1 or not np.isfinite(values).all():
        raise Absent("the table match must have one number per model")
    return exact(values)


Reach = tuple[float, float]
"""How far the truth may lie below and above the reading; NaN means without limit."""
EXACT: Reach = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Bound:
    """Whether the true time may be earlier or later."""

    earlier: bool = False
    later: bool = False


def of_crossing(crossing: Crossing, numbers: np.ndarray) -> Bound:
    """Whether the time at which the curve `numbers`, (1 + R, update), crosses a share of its change is only a bound."""
    return Bound(earlier=crossing.before == 0, later=not finished(numbers))


def of_extremum(place: int, num: int) -> Bound:
    """Whether the time of an extremum at index `place` of the `num` checkpoints after step 0 is only a bound."""
    return Bound(earlier=place == 0, later=place == num - 1)


def finished(numbers: np.ndarray) -> bool:
    """Whether the curve in the first row has settled; the further rows are its replicates."""
    errors = numbers[1:].std(axis=0) if len(numbers) > 2 else np.zeros(numbers.shape[1])
    return is_finished(numbers[0], errors)


def of_difference(later: Bound, earlier: Bound) -> Reach:
    return limit(later.earlier or earlier.later), limit(later.later or earlier.earlier)


def of_distance(difference: float, reach: Reach) -> Reach:
    """The reach of the absolute value of `difference`, from the reach of the difference itself."""
    nearer, farther = reach if difference >= 0 else reach[::-1]
    return abs(difference) if np.isnan(nearer) else 0.0, limit(np.isnan(nearer) or np.isnan(farther))


def limit(unknown: bool | np.bool) -> float:
    """One part of a reach: NaN if the side is unknown, else 0."""
    return float("nan") if unknown else 0.0


def with_reach(numbers: np.ndarray, *reaches: Reach) -> np.ndarray:
    """The numbers, (1 + R, K), followed by two columns for each reach."""
    behind = np.array([part for reach in reaches for part in reach])
    return np.concatenate([numbers, np.tile(behind, (len(numbers), 1))], axis=1)


def reach_at(curve: np.ndarray, place: int) -> Reach:
    """The reach stored in columns `place` and `place` + 1 of a claim's rows."""
    low, high = curve[0, place : place + 2]
    return float(low), float(high)


def of_order(
    times: np.ndarray, earlier: np.ndarray, later: np.ndarray, statistic: Callable[[np.ndarray], float]
) -> Reach:
    """The reach of a rank statistic of `times`, some of which are only bounds.

    Times that may be later are moved one by one, from either end of the list, behind all others. Times that may be
    earlier are moved before all others. The minimum and maximum of `statistic` define the reach.
    """
    values = [statistic(moved) for moved in _moved(times, np.flatnonzero(earlier), np.flatnonzero(later))]
    read = statistic(times)
    return max(read - min(values), 0.0), max(max(values) - read, 0.0)


def _moved(times: np.ndarray, earlier: np.ndarray, later: np.ndarray) -> list[np.ndarray]:
    """Versions of the times in which some of the uncertain ones are moved to their extremes."""
    span = 1 + np.nanmax(times) - np.nanmin(times)
    found = []
    for first in _part(earlier):
        for last in _part(later):
            moved = times.copy()
            moved[first] = np.nanmin(times) - span - np.arange(len(first))
            moved[last] = np.nanmax(times) + span + np.arange(len(last))
            found.append(moved)
    return found


def _part(places: np.ndarray) -> list[np.ndarray]:
    """Subsets of the places to move: none, and the first or last 1, 2, … of them."""
    ways = [places, places[::-1]]
    return [places[:0], *(way[:num] for way in ways for num in range(1, len(places) + 1)),
            *(way[:num][::-1] for way in ways for num in range(1, len(places) + 1))]  # fmt: skip
