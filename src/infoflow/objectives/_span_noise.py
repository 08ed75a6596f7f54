"""T5's noise: the choice of tokens to remove, and the notation of the rest and the removed tokens.

Masks are Bool (token,) over a text without special tokens. Source: [@raffel2020exploring], functions of the released
`t5.data.preprocessors`.
"""

import math

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError


def iid_mask(length: int, density: float, generator: np.random.Generator) -> np.ndarray:
    """Each token is noise with probability `density`; there may be none."""
    return generator.random(length) < density


def span_mask(length: int, density: float, mean_length: float, generator: np.random.Generator) -> np.ndarray:
    """Spans of noise: their number and mean length are fixed, only the cuts are random (`random_spans_noise_mask`).

    Of L tokens `nn = clip(round(L · density), 1, L − 1)` are noise, in `ns = max(round(nn / mean_length), 1)` spans;
    noise and the rest are each cut into `ns` parts uniformly at random, and the rest comes first: so the first token is
    never noise and the last always is. A text of one token counts as one of two.

    Raises:
        UserError: There would be more spans than tokens between them.
    """
    whole = max(length, 2)
    num_noise, num_spans = span_numbers(whole, density, mean_length)
    noise = _composition(num_noise, num_spans, generator)
    rest = _composition(whole - num_noise, num_spans, generator)
    mask = np.zeros(whole, dtype=bool)
    lengths = np.stack([rest, noise], axis=1).ravel()
    starts = np.cumsum(lengths)[:-1]
    mask[starts] = True  # boundaries between noise and rest
    return (np.cumsum(mask) % 2 == 1)[:length]


def span_numbers(length: int, density: float, mean_length: float) -> tuple[int, int]:
    """Noise tokens and noise spans of `length` (at least 2) tokens.

    Raises:
        UserError: There would be more spans than tokens between them.
    """
    num_noise = min(max(round(length * density), 1), length - 1)
    num_spans = max(round(num_noise / mean_length), 1)
    if num_spans > length - num_noise:
        raise UserError(
            f"Between {num_spans} spans of noise there must be as many other tokens. Got {length - num_noise} of "
            f"{length} tokens.\nLower the density, or raise the mean length of spans."
        )
    return num_noise, num_spans


def run_starts(mask: np.ndarray) -> np.ndarray:
    """Bool (token,): whether a maximal run of True begins there."""
    firsts = mask.copy()
    firsts[1:] &= ~mask[:-1]
    return firsts


def with_sentinels(tokens: np.ndarray, mask: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """`tokens` with each run of `mask` replaced by its own sentinel, in order.

    Raises:
        UserError: The vocabulary has fewer sentinels than runs.
    """
    firsts = run_starts(mask)
    num_runs = int(firsts.sum())
    if num_runs > len(vocabulary.sentinels):
        raise UserError(
            f"A text with {num_runs} spans of noise needs {num_runs} sentinel tokens (<extra_id_0>, ...). Got a "
            f"vocabulary with {len(vocabulary.sentinels)}.\nAdd them to the tokenizer, or use shorter texts."
        )
    replaced = tokens.copy()
    replaced[firsts] = np.asarray(vocabulary.sentinels[:num_runs], dtype=tokens.dtype)
    return replaced[firsts | ~mask]


def most_runs(longest: int, density: float) -> int:
    """Sentinels that independent noise on `longest` tokens needs, except for one text in a million."""
    mean = longest * density * (1 - density) + density
    return min((longest + 1) // 2, math.ceil(mean + 5 * math.sqrt(mean) + 2))


def _composition(total: int, parts: int, generator: np.random.Generator) -> np.ndarray:
    """`total` as a sum of `parts` positive numbers, uniform over compositions: `parts − 1` cuts among `total − 1`."""
    cuts = np.zeros(total - 1, dtype=np.int64)
    cuts[: parts - 1] = 1
    part_of = np.concatenate([[0], np.cumsum(generator.permutation(cuts))])
    return np.bincount(part_of, minlength=parts)
