"""What claims read from tables about what models with and without passages store, read and find.

Besides hits, the table `retrieval_scores` holds null_prior (the prior of the empty passage), utility, log_likelihood,
loss, p1, posterior_entropy_1 and _2, later_by_utility and later_by_likelihood, and read_updates for pretrained readers.
The system "own" is the model's own search.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._finding import Control
from infoflow.findings._head_numbers import largest, stacked
from infoflow.findings._model_group import NAMES, RETRIEVE_LEARNED, Absent
from infoflow.findings._table import Function, Reading, SeedRows, Table, exact, one_number, together, untrained
from infoflow.results import RETRIEVAL_SCORES, Spec
from infoflow.subjects.allocation.measures import ALLOCATION_STEPS

from ..measures import (
    ATTENTION_RANKING,
    EVIDENCE_ABLATION,
    EVIDENCE_FLOW,
    EVIDENCE_HEADS,
    KNOWLEDGE,
    KNOWLEDGE_CONFLICT,
    KNOWLEDGE_LENS,
)

# R: bootstrap replicates, K: numbers

TRAINED, HELD_OUT, CHANGED, LATER = "trained", "held out", "changed", "later"
"""Kinds of facts. Changed facts are trained like the others; "all of T" combines trained and changed facts."""
RARE, COMMON = 1, 16
"""The exposures that claims compare: the rarest and the most frequent class of a plan's `exposures`."""
WEIGHTS = (1, 4, 16)
OWN = ("own", "retrieved")  # all candidates, weighted by the model; if it has none, the first retrieved passage
FULL_SHARE = 0.95  # share of an object's total bits; models that store more of a class are too full to differ in it
_RAW: dict[str, Any] = {"reading": "raw", "layer": -1, "index": "as-trained", "metric": "p1", "weight": -1}


def knows(objective: Spec, facts: str, document: str | tuple[str, ...], **where: Any) -> Reading:
    """A number of the table `knowledge`, by default the share of correct answers on all facts of a kind."""
    which = "" if isinstance(document, tuple) else f' with the document "{document}"'
    absent = f"no {{state}} {NAMES[objective]} was asked about {facts} facts{which}"
    return _said("knowledge", objective, absent, **{**_RAW, "facts": facts, "document": document, **where})


def bits_of_classes(objective: Spec, reading: str = "raw") -> Reading:
    """Stored bits of the trained facts of each exposure, then the total number of bits for each, (1 + R, 2K).

    The total is log2 m for m possible objects. It is the sum of the metrics `bits` and `nats`, both in bits.
    """
    absent = f"no {{state}} {NAMES[objective]} was asked about trained facts without a document ({reading})"
    where = {"facts": TRAINED, "document": "none", "index": "as-trained", "reading": reading, "layer": -1}
    where |= {"weight": ...}
    table = Table(KNOWLEDGE.name, objective, needs=("weight",), absent=absent)
    return table.where(**where, metric=...).reduce(_bits)


def stored(curves: np.ndarray, others: Sequence[np.ndarray] = ()) -> int | None:
    """Index of the most frequent class of `bits_of_classes` that at least one model has not nearly filled, or None."""
    num = len(WEIGHTS)
    for place in reversed(range(num)):
        full = [own[0, place] > FULL_SHARE * own[0, num + place] for own in (curves, *others)]
        if not all(full):
            return place
    return None


def full(name: str, *others: str) -> Any:
    """A function for `Finding.hinders` that reports whether every class of every model is full."""

    def hinders(curves: Any, verdict: str) -> str | None:
        if stored(curves[name], [curves[other] for other in others]) is not None:
            return None
        return (
            f"all models store more than {FULL_SHARE:.0%} of the bits of every exposure: the world is too small to "
            "differ in (use more entities, or fewer updates)"
        )

    return hinders


def found(
    objective: Spec, metric: str = "hit", queries: str | tuple[str, ...] = ("facts", "all", HELD_OUT), k: Any = 1
) -> Reading:
    """A number of the table `retrieval_scores` about the model's own search."""
    absent = f"no {{state}} {NAMES[objective]} has a value of {metric}"
    return _said(RETRIEVAL_SCORES.name, objective, absent, system="own", queries=queries, metric=metric, k=k)


def reported(objective: Spec, metric: str, queries: str | tuple[str, ...] = ("all", "facts")) -> Reading:
    """Like `found`, for a metric without a cut-off."""
    return found(objective, metric, queries, k=0)


def unable_to_read(reads: Mapping[str, Reading]) -> dict[str, Reading]:
    """Return the same readings before training, if the readers started with random weights.

    Pretrained readers (`read_updates`) are no control: passages help them even before training on this world.
    """
    found = {}
    for name, reading in untrained(reads).items():
        function = partial(_unless_able, function=reading.function)
        found[name] = Reading((*reading.tables, _ABLE), function, reading.first_layer, reading.optional + 1)
    return found


def seeds_and_start(reads: Mapping[str, Reading], *sides: Any) -> tuple[Control, Control]:
    """Two controls: differences between seeds alone, and untrained models (not decisive: all variants start alike)."""
    return seeds_alone(reads, *sides), Control(name="untrained models", reads=untrained(reads), decisive=False)


def by_passages(objective: Spec) -> Reading:
    """Share of correct answers by the number of passages read, (1 + R, K)."""
    absent = f"no {{state}} {NAMES[objective]} was asked about dates with several numbers of passages"
    table = Table(RETRIEVAL_SCORES.name, objective, needs=("k",), absent=absent)
    return table.where(system="own", queries="dates", metric="p1").reduce(_by_k)


def followed(objective: Spec, *, slope: bool = False) -> Reading:
    """Memorisation ratio on trained facts; with `slope`, its slope over the logarithm of the exposure."""
    absent = f"no {{state}} {NAMES[objective]} read documents that contradict what was trained"
    where = {"facts": TRAINED, "layer": -1, "metric": "memorisation_ratio"}
    if not slope:
        return _said(KNOWLEDGE_CONFLICT.name, objective, absent, weight=-1, **where)
    table = Table(KNOWLEDGE_CONFLICT.name, objective, needs=("weight",), absent=absent)
    return table.where(**where, weight=...).reduce(_slope)


def lost(objective: Spec, what: str, facts: tuple[str, ...] = (HELD_OUT, TRAINED)) -> Reading:
    """Share of correct answers with the gold document that are lost if attention is knocked out in all blocks."""
    absent = f'no {{state}} {NAMES[objective]} was measured with the attention "{what}" knocked out'
    needs = ("scope", "layer")
    where = {"document": "gold", "method": "knock-out", "what": what, "metric": "p1", "facts": facts}
    return Table(EVIDENCE_FLOW.name, objective, needs=needs, absent=absent).where(**where).reduce(_in_all_blocks)


def traced(objective: Spec) -> Reading:
    """Largest effect (over blocks and outputs) of restoring the subject's last token, without and with a document."""
    absent = f"no {{state}} {NAMES[objective]} has traced answers"
    table = Table(EVIDENCE_FLOW.name, objective, needs=("what", "layer"), absent=absent)
    sides = [
        table.where(facts=TRAINED, document=document, method="tracing", metric="probability", scope=..., what=...)
        for document in ("none", "gold")
    ]
    return together(_largest, *sides)


def copying(objective: Spec, document: str = "gold", least: float = 0.1) -> Reading:
    """Share of heads with a copy score of at least `least`, and the number of heads, (1 + R, 2)."""
    absent = f'no {{state}} {NAMES[objective]} has copy scores with the document "{document}"'
    table = Table(EVIDENCE_HEADS.name, objective, needs=("layer", "head"), absent=absent)
    where = {"facts": (HELD_OUT, TRAINED), "document": document, "metric": "copy"}
    return table.where(**where).reduce(_share_of_heads, least=least)


def without_heads(
    objective: Spec, document: str, facts: tuple[str, ...] = (HELD_OUT, TRAINED), least: float = 0.0
) -> Reading:
    """Accuracy of the whole model, without the quarter of heads that copy most, and without random ones, (1 + R, 3).

    If exactly a quarter was never removed, the next smaller number counts. With all heads, the accuracy must be at
    least `least`.
    """
    absent = f'no {{state}} {NAMES[objective]} was measured without heads and with the document "{document}"'
    where = {"document": document, "metric": "p1", "facts": facts}
    ablation = Table(EVIDENCE_ABLATION.name, objective, needs=("removed", "baseline"), absent=absent).where(**where)
    heads = Table(EVIDENCE_HEADS.name, objective, needs=("layer", "head"), absent=absent)
    of = f'{NAMES[objective]}, {facts[0]} facts, document "{document}"'
    return together(_without, ablation, heads.where(facts=..., document=..., metric="copy"), least=least, of=of)


def without_random_heads(objective: Spec, document: str) -> Reading:
    """Accuracy of the whole model, without random heads, and of the whole model again, (1 + R, 3)."""
    reading = without_heads(objective, document)
    return Reading(
        reading.tables, partial(_changed, function=reading.function, change=partial(np.take, indices=[0, 2, 0], axis=1))
    )


def ranking(objective: Spec, metric: str = "spearman") -> Reading:
    """How well the attention on passages ranks them."""
    absent = f"no {{state}} {NAMES[objective]} has a ranking of passages by its attention"
    return _said(ATTENTION_RANKING.name, objective, absent, metric=metric)


def entry(objective: Spec, facts: str, document: str, weight: int = -1) -> Reading:
    """State at which an answer enters (half and centre), by a tuned lens at the mask; `weight` −1: all exposures."""
    about = f"{facts} facts{f' asked {weight} times as often' if weight > 0 else ''}, document {document}"
    absent = f"no {{state}} {NAMES[objective]} was examined with a lens ({about})"
    table = Table(KNOWLEDGE_LENS.name, objective, needs=("metric",), absent=absent)
    where = {"facts": facts, "weight": weight, "document": document, "lens": ("tuned", "logit"), "place": "mask"}
    return table.where(**where, metric=...).reduce(_entry, of=f"{NAMES[objective]}, {about}")


def best_layer(reading: Reading) -> Reading:
    """The value of the best layer, which is chosen on the other half of the sentences, (1 + R, 1)."""
    return Reading(reading.tables, partial(_changed, function=reading.function, change=largest))


def part_by_window(part: str) -> Reading:
    """Loss change of a part (a component or a stack) in each window, then that of all parts, (1 + R, 2K).

    Windows before the retriever's first change do not count, because a frozen retriever cannot learn.
    """
    absent = f"no training of a {NAMES[RETRIEVE_LEARNED]} was recorded"
    needs = ("component", "window", "term")
    table = Table(ALLOCATION_STEPS.name, RETRIEVE_LEARNED, needs=needs, absent=absent, no_model=absent)
    return table.where(set="train", stack=...).reduce(_by_window, part=part)


def _said(table: str, objective: Spec, absent: str, **where: Any) -> Reading:
    needs = ("baseline",)
    return Table(table, objective, needs=needs, absent=absent).where(**where).reduce(partial(_only, what=absent))


_ABLE = Table(RETRIEVAL_SCORES.name, RETRIEVE_LEARNED).where(system="own", queries="trained", metric="read_updates")


def _unless_able(*rows: Any, function: Function) -> np.ndarray | None:
    if rows[-1] is not None:
        raise Absent("the readers were pretrained, so passages help them even before training")
    return function(*rows[:-1])


def _only(rows: SeedRows, what: str) -> np.ndarray:
    if len(rows.frame) == 1 and not np.isfinite(rows.numbers[0]).all():
        raise Absent(f"a number is undefined for one model ({', '.join(_places(rows))})")
    return one_number(rows)


def _places(rows: SeedRows) -> list[str]:
    names = ("facts", "document", "queries", "metric")
    return [f"{name} {rows.frame[name].iloc[0]}" for name in names if name in rows.frame]


def _bits(rows: SeedRows) -> np.ndarray:
    held, there = [], []
    for weight in WEIGHTS:
        own = rows.at(rows.frame["weight"] == weight)
        bits, nats = (one_number(own.at(own.frame["metric"] == metric)) for metric in ("bits", "nats"))
        held.append(bits[:, 0])
        there.append(np.full(len(bits), bits[0, 0] + abs(nats[0, 0]) / np.log(2)))
    return stacked([*held, *there])


def _by_k(rows: SeedRows) -> np.ndarray:
    ks = rows.column("k")
    if len(set(ks)) < 3 or len(set(ks)) < len(ks):
        raise Absent(f"a curve needs three numbers of passages, and there are {len(set(ks))}")
    return rows.numbers[:, np.argsort(ks)]


def _slope(rows: SeedRows) -> np.ndarray:
    own = rows.at(rows.frame["weight"] > 0)
    x = np.log(own.column("weight"))
    if len(set(x)) < 2:
        raise Absent("a slope needs two exposures (retrieval.exposures)")
    x = x - x.mean()
    return (own.numbers @ x / (x @ x))[:, None]


def _in_all_blocks(rows: SeedRows) -> np.ndarray:
    for scope, layer in (("all", -1), ("upward", 0)):
        own = rows.at((rows.frame["scope"] == scope) & (rows.frame["layer"] == layer))
        if len(own.frame):
            return one_number(own)
    raise Absent("attention was knocked out in single blocks only, never in all of them")


def _largest(*parts: SeedRows) -> np.ndarray:
    found = []
    for rows in parts:
        subject = rows.at(["subject" in what and "evidence" not in what for what in rows.frame["what"].astype(str)])
        if subject.frame.empty or not np.isfinite(subject.numbers[0]).any():
            raise Absent("answers were traced at no token of the subject")
        found.append(largest(subject.numbers)[:, 0])
    return stacked(found)


def _share_of_heads(rows: SeedRows, least: float) -> np.ndarray:
    copies = rows.numbers >= least
    return np.stack([copies.mean(axis=1), np.full(len(copies), float(copies.shape[1]))], axis=1)


def _without(ablation: SeedRows, heads: SeedRows, least: float, of: str) -> np.ndarray:
    num_heads = len(heads.frame[["layer", "head"]].drop_duplicates())
    removed = ablation.column("removed")
    some = removed[(removed > 0) & (removed <= max(num_heads // 4, 1))]
    if not (removed == 0).any() or not len(some):
        raise Absent("right answers were not measured both with all heads and without a quarter of them")
    whole, less = (one_number(ablation.at(removed == num)) for num in (0, some.max()))
    if whole[0, 0] < least:
        raise Absent(f"there is nothing to lose: {whole[0, 0]:.2f} of the answers are right with all heads ({of})")
    chance = ablation.at(removed == some.max()).column("baseline")
    return stacked([whole[:, 0], less[:, 0], np.full(len(whole), chance[0])])


def _entry(rows: SeedRows, of: str) -> np.ndarray:
    columns = []
    for metric in ("half", "centre"):
        own = rows.at(rows.frame["metric"] == metric)
        if len(own.frame) != 1 or not np.isfinite(own.numbers[0]).all():
            raise Absent(f"where the answer enters is undefined for one model ({of}): the lens gains less than .05")
        columns.append(own.numbers[:, 0])
    return stacked(columns)


def _changed(*rows: SeedRows, function: Function, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    found = function(*rows)
    return None if found is None else change(found)


def _by_window(rows: SeedRows, part: str) -> np.ndarray:
    rows = rows.at(rows.frame["term"] == rows.frame["term"].iloc[0])
    own, begins = _rows_of_part(rows, part), _rows_of_part(rows, "retriever")
    windows, values = rows.column("window"), rows.column("value")
    changed = windows[begins & (values != 0)]
    if not len(changed):
        raise Absent("the retriever was frozen all the time")
    known = np.unique(windows[windows >= changed.min()])
    if len(known) < 3:
        raise Absent(
            "comparing thirds needs three windows in which the retriever learns (dynamics.windows), and there are "
            f"{len(known)}"
        )
    return exact([values[keep & (windows == one)].sum() for keep in (own, windows >= 0) for one in known])


def _rows_of_part(rows: SeedRows, part: str) -> np.ndarray:
    """Mask of the rows about a component or stack of that name."""
    names = zip(rows.frame["component"].astype(str), rows.frame["stack"].astype(str), strict=True)
    own = np.array([part in pair for pair in names])
    if not own.any():
        raise Absent(f"the recording has no part called {part}")
    return own
