"""Claims about patching: patching:P1, P2 and P3."""

import numpy as np

from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, Verdict, claim, exceeds
from infoflow.findings._model_group import CAUSAL, Absent
from infoflow.findings._sources import Source
from infoflow.findings._table import Reading, SeedRows, Table, baselines, one_number
from infoflow.foundation import t_quantile

from .measures import PATCHING_AGREEMENT, PATCHING_EFFECT, PATCHING_FAITHFULNESS
from .measures._effects import DENOISING, GRADIENT, METHODS
from .measures._parts import HEAD

_ATTRIBUTION = Source("Nanda 2023, Attribution Patching: Activation Patching At Industrial Scale", "second hand")
_FAITH = Source(
    "Hanna, Pezzelle and Belinkov 2024, Have Faith in Faithfulness: Going Beyond Circuit Overlap When Finding Model "
    "Mechanisms, COLM",
    "abstract",
)


def _gap(rows: SeedRows) -> np.ndarray:
    """The metric on clean inputs minus that on corrupted ones; it is the same in every row."""
    gap = (rows.column("clean") - rows.column("corrupted"))[0]
    return np.full((len(rows.numbers), 1), gap)


_GAP = Table(PATCHING_EFFECT.name, CAUSAL, needs=("clean", "corrupted")).where(direction=DENOISING).reduce(_gap)


def _no_gap(curves: Curves, verdict: Verdict) -> str | None:
    """Why there is nothing to explain: the metric is not higher on clean inputs; otherwise None."""
    return None if curves["gap"][0, 0] > 0 else "the metric is not higher for clean than for corrupted inputs"


_P1_READS: dict[str, Reading] = {
    "agreement": Table(PATCHING_AGREEMENT.name, CAUSAL)
    .where(part=HEAD, direction=DENOISING, method=GRADIENT, statistic="spearman")
    .reduce(one_number)
}


@claim(
    "patching:P1",
    "First-order effects of a causal LM's heads agree with their exact effects.",
    source=_ATTRIBUTION,
    published="GPT-2 small: gradients approximate the effects of heads well (from memory)",
    statistic="rank correlation over heads of gradient × difference with the exact effect, denoising: above .5",
    reads=_P1_READS | {"gap": _GAP},
    controls=(Control(name="unrelated effects", reads=baselines(_P1_READS) | {"gap": _GAP}),),
    learned=(),
    hinders=_no_gap,
    minimum_seeds=1,
)
def p1(curves: Curves) -> list[Condition]:
    """Condition that compares gradients with exact effects, in the causal LM."""
    return [exceeds("rank correlation with exact effects", curves["agreement"], 0.5, "rho", bounds=CORRELATION)]


def _distances(rows: SeedRows) -> np.ndarray:
    """Distance of the kept share from 1, averaged over numbers of kept parts, for each ranking and for random orders.

    For random orders it is the distance that another random order would fall below with probability .025.
    """
    inner = rows.at((rows.frame["parts"] > 0) & (rows.frame["parts"] < rows.frame["total"]))
    by_ranking = {name: np.abs(1 - own.numbers).mean(axis=1) for name, own in inner.groups("ranking")}
    if missing := [name for name in METHODS if name not in by_ranking]:
        raise Absent(f"{PATCHING_FAITHFULNESS.name} ranks no parts by the method {missing[0]}")
    best = [by_ranking.pop(name) for name in METHODS]
    random, num = np.array(list(by_ranking.values())), len(by_ranking)
    if num < 2:
        raise Absent(f"{PATCHING_FAITHFULNESS.name} holds no random orders")
    width = t_quantile(num - 1) * np.sqrt(1 + 1 / num)
    return np.stack([*best, random.mean(axis=0) - width * random.std(axis=0, ddof=1)], axis=1)


_RANKINGS = Table(PATCHING_FAITHFULNESS.name, CAUSAL, needs=("ranking", "parts", "total")).where(ranking=...)
_FAITHFULNESS = {"distance": _RANKINGS.reduce(_distances), "gap": _GAP}


@claim(
    "patching:P2",
    "The parts of a causal LM with the largest effects by integrated gradients are more faithful than those by "
    "gradients at one input.",
    source=_FAITH,
    published="GPT-2 small: circuits by EAP-IG are more faithful than those by EAP, for edges; here for heads and "
    "feed-forward parts",
    statistic="distance from 1 of the share that the best parts keep, mean over numbers of parts: ranked by gradients, "
    "minus ranked by integrated gradients, above 0",
    reads=_FAITHFULNESS,
    controls=(),
    uncontrolled="both rankings are scored on the same pairs, and neither was chosen on these pairs",
    learned=(),
    hinders=_no_gap,
    minimum_seeds=1,
)
def p2(curves: Curves) -> list[Condition]:
    """Condition that compares integrated gradients with gradients."""
    _, gradient, integrated, _ = np.split(curves["distance"], len(METHODS) + 1, axis=1)
    name = "distance from 1 by gradients beyond that by integrated gradients"
    return [exceeds(name, gradient - integrated, 0.0, "share")]


@claim(
    "patching:P3",
    "The parts of a causal LM with the largest effects are more faithful than random parts.",
    source=_FAITH.beyond,
    published="no number: the source compares methods; random parts are the least that a ranking must exceed",
    statistic="distance from 1 of the share that the best parts keep, mean over numbers of parts: ranked by exact "
    "effects, gradients and integrated gradients, below the 2.5th percentile of random orders",
    reads=_FAITHFULNESS,
    controls=(),
    uncontrolled="random orders are the comparison, and all rankings are scored on pairs that were not used to rank",
    learned=(),
    hinders=_no_gap,
    minimum_seeds=1,
)
def p3(curves: Curves) -> list[Condition]:
    """Condition that compares the best parts with random ones."""
    gain = curves["distance"][:, -1:] - curves["distance"][:, :-1]
    return [exceeds("distance from 1 of random parts beyond that of the best ones", gain, 0.0, "share", METHODS)]
