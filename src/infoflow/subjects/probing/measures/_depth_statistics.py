"""The depth at which a task is solved: statistics of mixing weights and of the scores of cumulative probes."""

# L + 1 layers of states, 0 = embeddings; leading axes (seeds, bootstrap replicates) are kept

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from torch import Tensor

from infoflow.foundation import UserError, as_tensor, as_written

Numbers = Sequence[Any] | np.ndarray | Tensor
NEGATIVE_SHARE = 0.2  # an expected layer is unstable if the share of negative differences is larger than this
LEAST_GAIN = 2.0
"""An expected layer is also unstable if the top layer gains less than this over layer 0, in points (percent of F1)."""


def expected_layer(scores: Numbers, running_maximum: bool = False) -> Any:
    r"""The layer at which, on average, a probe gains its score.

    $$ \frac{\sum_{l \ge 1} l\, \Delta_l}{\sum_{l \ge 1} \Delta_l}, \qquad \Delta_l = S_l - S_{l-1} $$

    Negative differences are kept, so the result can lie outside 0..L. The denominator is $S_L - S_0$; if it is small,
    the result means little (see `depth_warnings`), and if it is 0, the result is NaN.

    Args:
        scores: $S_l$ of the probes that see layers 0..l, (..., L + 1), in any unit.
        running_maximum: Use $\max_{k \le l} S_k$ instead of $S_l$, so that no difference is negative.

    Raises:
        UserError: Fewer than two layers.

    Source: [@tenney2019], the authors' notebook; the running maximum is ours.

    >>> expected_layer([60.0, 80.0, 90.0, 90.0])
    1.3333333333333333
    """
    deltas = differential_scores(scores, running_maximum)
    layers = np.arange(1, deltas.shape[-1] + 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _plain((deltas @ layers) / np.where(deltas.sum(-1) == 0, np.nan, deltas.sum(-1)))


def differential_scores(scores: Numbers, running_maximum: bool = False) -> np.ndarray:
    r"""$\Delta_l$ of `expected_layer` for layers 1..L, (..., L), in the unit of the scores."""
    values = _layers(scores, "scores")
    return np.diff(np.maximum.accumulate(values, axis=-1) if running_maximum else values, axis=-1)


def center_of_gravity(weights: Numbers, layers: Literal["all", "oneplus"] = "all") -> Any:
    r"""$\sum_l s_l\, l$ of mixing weights that sum to 1, (..., L + 1), in layers.

    `"oneplus"` excludes the embeddings: the weights of layers 1 and up are rescaled to sum to 1.

    Raises:
        UserError: The weights do not sum to 1, or one is below 0.

    Source: [@tenney2019].

    >>> center_of_gravity([0.5, 0.25, 0.25])
    0.75
    """
    values = _distribution(weights)
    if layers == "oneplus":
        values = values.copy()
        values[..., 0] = 0
        values /= values.sum(-1, keepdims=True)
    return _plain(values @ np.arange(values.shape[-1]))


def mixing_entropy(weights: Numbers) -> Any:
    """Entropy of mixing weights that sum to 1, (..., L + 1), in bits."""
    return _plain(_entropy(_distribution(weights)))


def kl_from_uniform(weights: Numbers) -> Any:
    r"""How much a task prefers some layers: $K(s) = \mathrm{KL}(s \,\|\, \text{uniform})$, in bits.

    If all n weights are finite, it is $\log_2 n - H(s)$: 0 for equal weights, $\log_2 n$ if one layer has all the
    weight. Weights that are not finite (layers that a probe did not see) are excluded from both s and n.

    Source: [@tenney2019], the authors' notebook.

    >>> kl_from_uniform([1.0, 0.0, 0.0, 0.0])
    2.0
    """
    values = _array(weights)
    finite = np.isfinite(values)
    known = _distribution(np.where(finite, values, 0.0))
    return _plain(np.log2(finite.sum(-1)) - _entropy(known))


def kl_of_differences(scores: Numbers) -> Any:
    r"""$K(\Delta)$: `kl_from_uniform` of the differences for layers 1..L, with negative ones set to 0, in bits.

    NaN if no layer gains.

    Source: [@tenney2019].
    """
    gains = np.clip(differential_scores(scores), 0, None)
    total = gains.sum(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _plain(np.log2(gains.shape[-1]) - _entropy(gains / total) + 0 * total[..., 0] / total[..., 0])


def contextual_headroom(scores: Numbers) -> Any:
    r"""The gain from context, $\max_l S_l - S_0$, in the unit of the scores; $\Delta_l$ divided by it is a fraction.

    Source: [@tenney2019].
    """
    values = _layers(scores, "scores")
    return _plain(values.max(-1) - values[..., 0])


def negative_mass(scores: Numbers) -> Any:
    r"""$\sum_l |\min(\Delta_l, 0)| \,/\, \sum_l |\Delta_l|$: share of decreases in all change; NaN without change."""
    deltas = differential_scores(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _plain(-np.minimum(deltas, 0).sum(-1) / np.abs(deltas).sum(-1))


def depth_warnings(scores: Numbers, least_gain: float = LEAST_GAIN, most_negative: float = NEGATIVE_SHARE) -> str:
    """Reasons why the expected layer of these scores (L + 1) is unstable; empty if it is stable."""
    values = _layers(scores, "scores")
    if values.ndim != 1:
        raise UserError(f"depth_warnings takes the scores of one task. Got an array of shape {values.shape}.")
    gain, lost = float(values[-1] - values[0]), float(negative_mass(values))
    reasons = []
    if not gain >= least_gain:
        reasons.append(f"the top layer gains {gain:.3g} over layer 0, less than {least_gain:g}")
    if lost > most_negative:
        reasons.append(f"{lost:.0%} of all change is loss, more than {most_negative:.0%}")
    return "; ".join(reasons)


def _array(values: Numbers) -> np.ndarray:
    return np.asarray(as_tensor(values).numpy() if isinstance(values, Tensor) else values, dtype=np.float64)


def _layers(values: Numbers, name: str) -> np.ndarray:
    array = _array(values)
    if array.ndim == 0 or array.shape[-1] < 2:
        got = as_written(array.tolist())
        raise UserError(f"{name} must have a number for each of at least two layers, 0..L. Got {got}.")
    return array


def _distribution(weights: Numbers) -> np.ndarray:
    values = _layers(weights, "weights")
    if (values < 0).any() or not np.allclose(values.sum(-1), 1, atol=1e-4):
        raise UserError(
            f"weights must not be below 0 and must sum to 1 over the layers. Got {as_written(values.tolist())}.\n"
            "Pass the softmax of a scalar mix's weights."
        )
    return values


def _entropy(values: np.ndarray) -> np.ndarray | np.floating:
    with np.errstate(divide="ignore", invalid="ignore"):
        return -np.where(values > 0, values * np.log2(values), 0.0).sum(-1)


def _plain(value: np.ndarray | np.floating) -> Any:
    return float(value) if np.ndim(value) == 0 else value
