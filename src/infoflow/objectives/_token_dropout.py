"""The ablation that corrupts inputs without masked prediction."""

import numpy as np

from infoflow.corpus import Vocabulary


def drop_tokens(
    tokens: np.ndarray, probability: float, generator: np.random.Generator, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray]:
    """Replace each non-special token, independently with `probability`, by one drawn uniformly from non-special ids.

    Returns the new tokens and a bool array of the positions that were drawn (a draw may repeat the old token).
    It separates "corrupted inputs" from "masked prediction"; labels stay clean. Source: [@voita2019evolution].
    """
    selected = (generator.random(len(tokens)) < probability) & ~vocabulary.is_special[tokens]
    if not selected.any():
        return tokens, selected
    noisy = tokens.copy()
    noisy[selected] = vocabulary.ordinary[generator.integers(len(vocabulary.ordinary), size=selected.sum())]
    return noisy, selected
