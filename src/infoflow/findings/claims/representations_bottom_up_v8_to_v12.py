"""Claims about representations: V8, V9, V10, V11, V12."""

import numpy as np

from .. import _curves
from .._control import seeds_alone
from .._finding import CORRELATION, NO_CAUSE, Condition, Control, Curves, Verdict, claim, exceeds, stays_below
from .._model_group import OBJECTIVES, TOKEN_DROPOUT, TRANSLATION
from .._sources import BOTTOM_UP
from .._table import Reading, baselines, untrained


@claim(
    "representations:V-8",
    "Representations of different objectives diverge with depth.",
    source=BOTTOM_UP,
    published="growth from layer 1 to 6: +.112 (translation–masked LM), +.151 (causal LM–translation), +.195 (causal "
    "LM–masked LM); between seeds +.007, +.038 and +.113",
    statistic="each distance between objectives grows at every layer, and from layer 1 to the top by over .03",
    reads=_curves.TASK_DISTANCES,
    controls=(
        Control(
            "seeds of one objective", dict(zip(_curves.TASK_DISTANCES, _curves.SEED_DISTANCES.values(), strict=True))
        ),
        Control("shuffled rows", baselines(_curves.TASK_DISTANCES)),
    ),
    learned=OBJECTIVES,
)
def v8(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L."""
    steps = {pair: -_curves.falls(curves[pair]) for pair in _curves.TASK_DISTANCES}
    layers = _curves.step_names(next(iter(steps.values())).shape[1], 1)
    return [
        exceeds(
            "growth of the distance between two objectives, layer 1 to the top",
            np.concatenate([-_curves.total_fall(curves[pair]) for pair in _curves.TASK_DISTANCES], axis=1),
            0.03,
            "1 − PWCCA",
            list(_curves.TASK_DISTANCES),
            published=0.112,
        ),
        exceeds(
            "growth at every layer",
            np.concatenate(list(steps.values()), axis=1),
            0.0,
            "1 − PWCCA",
            [f"{layer}, {pair}" for pair in steps for layer in layers],
            published=0.007,
        ),
    ]


# "Non-increasing" must allow equal layers, and an interval around equality always includes it. An increase below the
# claim's own least effect counts as none.
TOLERANCE = 1.1


def _somewhere(name: str, ratios: np.ndarray, labels: list[str], published: float) -> Condition:
    """A condition on any layer. Noise also rises and falls somewhere, so it counts only with the others."""
    return exceeds(name, ratios, 1.0, "ratio", labels, over="any", alone=False, published=published)


@claim(
    "representations:V-9",
    "Layers of a translation encoder change tokens less and less; language models do not, and a masked LM changes "
    "them most at the last layer.",
    source=BOTTOM_UP,
    published="change at layers 1-2 to 5-6: translation .0645 .0645 .053 .0495 .039; causal LM .075 .067 .065 .079 "
    ".0705; masked LM .0895 .077 .063 .0655 .110 (last over previous maximum: 1.23)",
    statistic="distance between consecutive layers: masked LM's last over every earlier one above 1.1; translation "
    "encoder never more than 1.1 times an earlier one, and its last under .91 times its first; causal LM and masked "
    "LM both rise and fall",
    reads=_curves.of_objectives(_curves.change),
    learned=OBJECTIVES,
)
def v9(curves: Curves) -> list[Condition]:
    """The curves are changes between consecutive layers, 1-2 to (L−1)-L."""
    ratios = {model: _curves.later_over_earlier(curve) for model, curve in curves.items()}
    masked = curves["masked"]
    num = masked.shape[1]
    names = _curves.pair_names(num, 1)
    return [
        exceeds(
            "last change of the masked LM over each earlier one",
            masked[:, -1:] / masked[:, :-1],
            1.1,
            "ratio",
            [f"{layer}-{layer + 1}" for layer in range(1, num)],
            published=1.23,
        ),
        stays_below(
            "a later change of the translation encoder over an earlier one",
            ratios["translation"],
            TOLERANCE,
            "ratio",
            names,
            published=1.0,
            alone=False,  # a model whose layers all change tokens equally never changes them more
        ),
        stays_below(
            "the last change of the translation encoder over its first",
            curves["translation"][:, -1:] / curves["translation"][:, :1],
            1 / TOLERANCE,
            "ratio",
            published=0.605,
        ),
        _somewhere("a rise of the causal LM's change", ratios["causal"], names, 1.22),
        _somewhere("a fall of the causal LM's change", 1 / ratios["causal"], names, 1.15),
        _somewhere("a fall of the masked LM's change", 1 / ratios["masked"], names, 1.42),
    ]


_V10_READS = _curves.of_objectives(_curves.change_by_rank)


def _where_it_counts(curves: Curves, reversed_last: np.ndarray) -> np.ndarray:
    half = _lower_half(curves["masked"].shape[1])
    return np.concatenate(
        [curves["translation"], curves["causal"][:, :-1], curves["masked"][:, :half], reversed_last], axis=1
    )


def _lower_half(num_steps: int) -> int:
    return max(1, num_steps // 2)


def _labels(num_steps: int) -> list[str]:
    steps = _curves.step_names(num_steps, 1)
    return [
        *(f"{step}, translation" for step in steps),
        *(f"{step}, causal LM" for step in steps[:-1]),
        *(f"{step}, masked LM" for step in steps[: _lower_half(num_steps)]),
        f"{steps[-1]}, masked LM, where the rarest change more",
    ]


@claim(
    "representations:V-10",
    "Frequent tokens are changed more than rare ones, except by the last layer of a masked LM, where rare tokens "
    "change more.",
    source=BOTTOM_UP,
    cause=NO_CAUSE,
    examined="reasons",
    published="change of ranks 1-10 and 10k-30k at layers 1-2 to 5-6: translation .114 to .066 and .045 to .028; "
    "causal LM .126 to .075 and .040 to .066; masked LM .146 to .060 and .059 to .117 (reversed at 5-6)",
    statistic="change by frequency bin falls with rank (rank correlation beyond .62, ratio of the most frequent bin to "
    "the rarest above 1.25) at every step of the translation encoder, every step but the last of the causal LM, and "
    "the lower half of the masked LM; both are reversed at the masked LM's last step",
    reads=_V10_READS,
    controls=(_curves.permuted_bins(_V10_READS), Control("untrained models", untrained(_V10_READS))),
    learned=OBJECTIVES,
)
def v10(curves: Curves) -> list[Condition]:
    """The curves are changes between consecutive layers, 1-2 to (L−1)-L, by frequency bin.

    Frequent tokens change more at every step in translation, at all steps but the last in the causal LM, and at steps
    of the lower half in the masked LM, where they change less at the last step.
    """
    correlations = {name: -_curves.rank_correlation(curve) for name, curve in curves.items()}
    ratios = {name: _curves.frequent_over_rarest(curve) for name, curve in curves.items()}
    return [
        exceeds(
            "rank correlation of change with frequency",
            _where_it_counts(correlations, -correlations["masked"][:, -1:]),
            0.62,
            "rank correlation",
            _labels(correlations["translation"].shape[1]),
            bounds=CORRELATION,
        ),
        exceeds(
            "change of the most frequent tokens over that of the rarest",
            _where_it_counts(ratios, 1 / ratios["masked"][:, -1:]),
            1.25,
            "ratio",
            _labels(correlations["translation"].shape[1]),
            published=1.73,
            alone=False,  # two bins of eleven may be in order by chance, so this counts only with the correlation
        ),
    ]


_V11_READS = _curves.of_objectives(_curves.influence_by_rank)


@claim(
    "representations:V-11",
    "Rare tokens influence the other tokens of a sentence more, in every layer of a causal LM and in the first layer "
    "of a translation encoder (the rarest by far), but not in the first layer of a masked LM.",
    source=BOTTOM_UP,
    cause=NO_CAUSE,
    examined="reasons",
    published="influence in layer 1: translation, rarest .0059, next .0022, ranks 1-10 .0003; causal LM .012 (rarest) "
    "and .006 (1-10); masked LM .0041 (rarest), .0042 (50-100) and .0025 (1-10)",
    statistic="influence by frequency bin rises with rank (rank correlation above .62, which a random order of 11 "
    "bins exceeds once in 40 times) in every layer of the causal LM and in layer 1 of the translation encoder, where "
    "the rarest bin has over twice the next one's; in layer 1 of the masked LM the correlation stays below .62",
    reads=_V11_READS,
    controls=(_curves.permuted_bins(_V11_READS), Control("untrained models", untrained(_V11_READS))),
    learned=OBJECTIVES,
)
def v11(curves: Curves) -> list[Condition]:
    """The curves are the influence in blocks 1..L, by frequency bin."""
    correlations = {name: _curves.rank_correlation(curve) for name, curve in curves.items()}
    layers = _curves.layer_names(correlations["causal"].shape[1], 1)
    return [
        exceeds(
            "rank correlation of influence with rarity",
            np.concatenate([correlations["causal"], correlations["translation"][:, :1]], axis=1),
            0.62,
            "rank correlation",
            [*(f"{layer}, causal LM" for layer in layers), f"{layers[0]}, translation"],
            bounds=CORRELATION,
        ),
        exceeds(
            "influence of the rarest tokens over that of the next bin, layer 1 of the translation encoder",
            _curves.rarest_over_next(curves["translation"])[:, :1],
            2.0,
            "ratio",
            published=2.7,
            alone=False,  # two bins may lie apart by chance, so this counts only with the correlation over all
        ),
        stays_below(
            "rank correlation of influence with rarity, layer 1 of the masked LM",
            correlations["masked"][:, :1],
            0.62,
            "rank correlation",
            bounds=CORRELATION,
            alone=False,  # every null lies below the threshold
        ),
    ]


NO_OUTLIER = 1.2


PLAIN = _curves.influence_by_rank(TRANSLATION)


_V12_READS: dict[str, Reading] = {"plain": PLAIN, "dropout": _curves.influence_by_rank(TOKEN_DROPOUT)}


def hinders(curves: Curves, verdict: Verdict) -> str | None:
    """Report that the rarest tokens have no extreme influence that dropout could reduce."""
    ratio = float(_curves.rarest_over_next(curves["plain"])[0, 0])
    if ratio > NO_OUTLIER:
        return None
    return (
        f"without token dropout the rarest tokens' influence is {ratio:.2f} times that of the next bin, which is no "
        f"outlier (over {NO_OUTLIER})"
    )


@claim(
    "representations:V-12",
    "The extreme influence of the rarest tokens in a translation encoder is due to overfitting: it disappears in "
    "training with token dropout.",
    source=BOTTOM_UP,
    published="layer 1: rarest .0059 and next .0022 (ratio 2.7); with token dropout, all are at most .0011 and the "
    "rarest is no longer extreme",
    statistic="influence of the rarest bin over that of the next, layer 1: with token dropout below 1.2, and at least "
    "25 % below the ratio without it",
    reads=_V12_READS,
    controls=(seeds_alone(_V12_READS, "plain", "dropout"), Control("untrained models", untrained(_V12_READS))),
    hinders=hinders,
)
def v12(curves: Curves) -> list[Condition]:
    plain, dropout = (_curves.rarest_over_next(curves[name])[:, :1] for name in ("plain", "dropout"))
    return [
        stays_below(
            "influence of the rarest tokens over that of the next bin, layer 1, with token dropout",
            dropout,
            NO_OUTLIER,
            "ratio",
            alone=False,  # a model without outliers lies below too, so what counts is how much dropout removes
        ),
        exceeds("share of this influence ratio that token dropout removes", 1 - dropout / plain, 0.25, "share"),
    ]
