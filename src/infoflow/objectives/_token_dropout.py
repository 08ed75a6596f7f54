"""The ablation that corrupts inputs without masked prediction, for any objective."""

import dataclasses
from functools import cache
from typing import Any

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability

from ._batch import Corrupted
from ._example import Example
from ._objective import AbstractObjective

OPTION = "token_dropout"


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


class TokenDropout:
    """Mixin before an objective in a class's bases: drops tokens from the model's (or its encoder's) input in training.

    The objective draws its own noise first, so that it hides the same tokens with and without dropout.
    """

    token_dropout: float

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The objective's own noise, then `drop_tokens` on `input_ids`; labels stay as they were."""
        own: Corrupted = super().corrupt(example, generator, vocabulary)  # type: ignore[misc] (of the objective behind)
        inputs, dropped = drop_tokens(own.input_ids, self.token_dropout, generator, vocabulary)
        return Corrupted(arrays={**own.arrays, **super().reads_instead(inputs)}, selected=own.selected | dropped)  # type: ignore[misc]

    def for_evaluation(self) -> AbstractObjective:
        """The objective without token dropout."""
        cls, options = self.__reduce__()[1]
        return cls(**{name: value for name, value in options.items() if name != OPTION}).for_evaluation()

    def __reduce__(self) -> tuple[Any, tuple[type[AbstractObjective], dict[str, Any]]]:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        return _rebuilt, (type(self).__bases__[1], options)


@cache
def with_token_dropout(cls: type[AbstractObjective]) -> type[AbstractObjective]:
    """The objective with the additional option `token_dropout`: the share of input tokens replaced by random ones."""
    return dataclasses.make_dataclass(  # type: ignore[return-value] (its second base is an objective)
        cls.__name__,
        [(OPTION, Probability, dataclasses.field(default=0.0))],
        bases=(TokenDropout, cls),
        namespace={"__module__": __name__},
        frozen=True,
        kw_only=True,
    )


def _rebuilt(cls: type[AbstractObjective], options: dict[str, Any]) -> AbstractObjective:
    return with_token_dropout(cls)(**options)
