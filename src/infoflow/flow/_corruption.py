"""Applies a model's training corruption to the text on which it is measured."""

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError
from infoflow.objectives import AbstractObjective, Corrupted, Example, MaskedLM


def corruption_of(objective: AbstractObjective | None) -> AbstractObjective:
    """The noise for a masked LM: that of its own objective, or `MaskedLM`'s if its training is unknown."""
    return (objective or MaskedLM()).on_text()


def corrupt_text(
    objective: AbstractObjective, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
) -> Corrupted:
    """Corrupt one text with an objective's noise, token by token.

    Raises:
        UserError: The noise adds or removes tokens, so that states cannot be matched to the tokens of the text.
    """
    corrupted = objective.corrupt(Example(texts=(tokens.astype(np.int64),)), generator, vocabulary)
    if len(corrupted.input_ids) != len(tokens):
        raise UserError(
            f"A measure of tokens needs noise that leaves each in its place. {objective.name} made "
            f"{len(corrupted.input_ids)} tokens of {len(tokens)}.\nMeasure the model with another corruption."
        )
    return corrupted
