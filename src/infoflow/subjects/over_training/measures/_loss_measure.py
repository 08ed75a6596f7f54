"""Shared parts of measures of single tokens' losses: the sentences, one pass for all, models without a loss."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import pandas as pd

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import UserError
from infoflow.heads import no_loss
from infoflow.models import Model

from ._token_losses import TokenLosses, token_losses

SENTENCES = 2000


class AbstractLossMeasure(Intervention):
    """A measure whose `rows` computes its table from the losses of predicted tokens.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.
    """

    def __init__(self, sentences: int | None = SENTENCES) -> None:
        self.sentences = checked_sentences(sentences)

    def refusal(self, model: Model) -> str | None:
        return no_loss(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = token_losses(reader, options, self.sentences)
        if not len(found.losses):
            raise NothingToRead(f"no sentence of {reader.corpus.name} has a token to predict")
        return pd.DataFrame(list(self.rows(reader, found)), columns=self.table.column_names)

    @abstractmethod
    def rows(self, reader: Reader, found: TokenLosses) -> Iterable[dict[str, Any]]:
        """Rows of the table; there is at least one predicted token."""


def checked_sentences(sentences: int | None) -> int | None:
    """A number of sentences, at least one, or None for all."""
    if sentences is not None and sentences < 1:
        raise UserError(f"sentences must be at least 1, or None for all. Got {sentences}.")
    return sentences
