"""Kinds of neurons by counts: token detectors, and neurons that follow position with the shape of their profile."""

# F neuron, P bin of positions, K candidate token, V token type

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import xlogy

TRIGGERS = 5
"""Maximum number of tokens that a detector detects."""
_COVERED = 0.95
LEAST = 10
"""Minimum number of occurrences of a token that a neuron can detect."""

OSCILLATING, TWO_SIDED, ONE_SIDED, OTHER = "oscillating", "two-sided", "one-sided", "other position"
SHAPES = (OSCILLATING, TWO_SIDED, ONE_SIDED, OTHER)
"""Shapes of the profile of a positional neuron."""
POSITIONAL_NATS = 0.05
"""Mutual information with position above which a neuron is positional."""
_EXTREME = 0.05  # a bin is an extreme if the neuron is active, or inactive, at less than this share of its tokens
_JUDGED = 50  # minimum number of tokens in a bin that can be an extreme


def position_information(
    active: Int[np.ndarray, "*set bin neuron"], tokens: Int[np.ndarray, "*set bin"]
) -> Float[np.ndarray, "*set neuron"]:
    r"""Mutual information of a neuron's activity and the position of the token, in nats.

    $$ I = \sum_p \frac{n_p}{N} \Big( f_p \ln \frac{f_p}{f} + (1 - f_p) \ln \frac{1 - f_p}{1 - f} \Big)
       - \frac{P - 1}{2 N} $$

    | symbol | here                                                                            |
    |--------|---------------------------------------------------------------------------------|
    | $n_p$  | `tokens`: tokens in bin p of positions; N in all bins                             |
    | $f_p$  | `active` / `tokens`: share of tokens at which it is active; f over all bins       |
    | $P$    | number of bins with tokens                                                       |

    The last term is the bias of the plug-in estimate for a binary variable. It is left out for a neuron that is always
    or never active, which has exactly 0.

    Source: [@voita2023neurons]; their texts all have 2,048 tokens, so all positions have the same weight. [@miller1955]
    for the bias.
    """
    counts_PF, sizes_P = np.asarray(active, float), np.asarray(tokens, float)[..., None]
    total, whole = sizes_P.sum(-2), counts_PF.sum(-2)
    known = (
        xlogy(counts_PF, counts_PF).sum(-2)
        + xlogy(sizes_P - counts_PF, sizes_P - counts_PF).sum(-2)
        - xlogy(sizes_P, sizes_P).sum(-2)
    )
    alone = xlogy(whole, whole) + xlogy(total - whole, total - whole) - xlogy(total, total)
    with np.errstate(invalid="ignore", divide="ignore"):
        bias = ((sizes_P > 0).sum(-2) - 1) / (2 * total)
        found = (known - alone) / total - bias
    return np.where((whole > 0) & (whole < total), found, 0.0)


def shapes(active: Int[np.ndarray, "bin neuron"], tokens: Int[np.ndarray, " bin"]) -> Int[np.ndarray, " neuron"]:
    """Index in `SHAPES` of each profile.

    A bin with at least 50 tokens is an extreme if the neuron is active at less than 5 % or more than 95 % of them.
    Oscillating: the profile goes from one extreme to the other and back; two-sided: it goes from one extreme to the
    other; one-sided: it reaches only one extreme.
    """
    judged_P = tokens >= _JUDGED
    share_PF = active[judged_P] / tokens[judged_P, None]
    extreme_PF = (share_PF > 1 - _EXTREME).astype(int) - (share_PF < _EXTREME)
    latest, switches = np.zeros(active.shape[1], int), np.zeros(active.shape[1], int)
    for extreme_F in extreme_PF:
        switches += extreme_F * latest < 0
        latest = np.where(extreme_F != 0, extreme_F, latest)
    one_sided = np.where(latest != 0, SHAPES.index(ONE_SIDED), SHAPES.index(OTHER))
    two_sided = np.where(switches == 1, SHAPES.index(TWO_SIDED), one_sided)
    return np.where(switches > 1, SHAPES.index(OSCILLATING), two_sided)


class Detectors(NamedTuple):
    """Which neurons detect tokens."""

    found: np.ndarray
    """(F,) bool: whether the neuron is a detector by these counts, which are exact or too low."""
    undecided: np.ndarray
    """(F,) bool: whether it is no detector by these counts, but would be one by the highest possible counts."""
    tokens: np.ndarray
    """(5, F): the neuron's triggers, most frequent first; −1: none."""
    share: np.ndarray
    """(F,) share of the neuron's activations that are on its triggers."""


def token_detectors(
    ids: Int[np.ndarray, "kept neuron"],
    counts: Int[np.ndarray, "kept neuron"],
    lost: Int[np.ndarray, " neuron"],
    active: Int[np.ndarray, " neuron"],
    frequencies: Int[np.ndarray, " type"],
) -> Detectors:
    r"""Neurons that are active if and only if the token is one of at most five.

    1. At most five tokens, the most frequent ones, make up at least 95 % of the neuron's activations.
    2. Its triggers are those of these tokens that activate it in at least 95 % of their occurrences.
    3. Its triggers make up at least 95 % of its activations.

    Args:
        ids: Tokens at which each neuron is most often active; −1: none.
        counts: How often each of these tokens activates it; possibly too low.
        lost: By how much counts may be too low.
        active: How often each neuron is active.
        frequencies: Occurrences of each token. A trigger needs ten occurrences, since a token that occurs once
            activates each neuron at all or at none of its occurrences. This minimum is ours.

    Source: [@voita2023neurons], section 4.2.
    """
    occurrences = np.where(ids >= 0, frequencies[ids], 0)
    lowest, tokens = _triggers(ids, counts, active, occurrences)
    highest = _highest(counts, lost, active, occurrences)
    found = (active > 0) & (lowest >= _COVERED * active)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(active > 0, lowest / active, 0.0)
    return Detectors(found, (active > 0) & (highest >= _COVERED * active) & ~found, tokens, share)


def _triggers(
    ids: np.ndarray, counts: np.ndarray, active: np.ndarray, occurrences: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Activations on triggers, (F,), and the triggers, (5, F)."""
    order = np.argsort(-counts, axis=0, kind="stable")[:TRIGGERS]
    ids, counts, occurrences = (np.take_along_axis(x, order, 0) for x in (ids, counts, occurrences))
    needed = np.cumsum(counts, axis=0) - counts < _COVERED * active
    is_trigger = needed & (counts > 0) & (occurrences >= LEAST) & (counts >= _COVERED * occurrences)
    return np.where(is_trigger, counts, 0).sum(0), np.where(is_trigger, ids, -1)


def _highest(counts: np.ndarray, lost: np.ndarray, active: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
    """An upper bound, (F,), on how many activations are on triggers: every count may be up to `lost` too low."""
    most = np.where(counts > 0, np.minimum(counts + lost, occurrences), 0)
    possible = np.where((occurrences >= LEAST) & (most >= _COVERED * occurrences), most, 0)
    best = -np.sort(-possible, axis=0)[:TRIGGERS]
    return np.minimum(np.maximum(best, lost).sum(0), active)
