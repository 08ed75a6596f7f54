"""Tokens by frequency in the training text: their loss and the change of their embeddings; and loss by position."""

# V type, D width

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Int

from infoflow.flow import Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.models import Model, weight_of
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._token_losses import AbstractLossMeasure, TokenLosses, counted_ngrams

NUM_DECILES = 10  # number of groups of types by frequency rank
NEVER_SEEN = -1


def frequency_deciles(counts: Int[np.ndarray, " V"]) -> Int[np.ndarray, " V"]:
    r"""The decile of each type, 0 the most frequent; −1 if a type never occurs.

    $$ d(w) = \Big\lfloor \frac{10}{S} \Big( |\{v : c(v) > c(w)\}| + \tfrac12 |\{v : c(v) = c(w)\}| \Big) \Big\rfloor $$

    over the S types that occur. Types with equal counts stay together, so a decile may be empty.

    >>> frequency_deciles(np.array([9, 0, 4, 1, 1]))
    array([ 1, -1,  3,  7,  7])
    """
    found = np.full(len(counts), NEVER_SEEN, dtype=np.int64)
    seen = counts[counts > 0]
    _, place, equal = np.unique(-seen, return_inverse=True, return_counts=True)
    # Twice the middle rank, for integer arithmetic.
    middle = 2 * (np.cumsum(equal) - equal) + equal
    found[counts > 0] = (NUM_DECILES * middle // (2 * max(len(seen), 1)))[place]
    return found


# The loss of tokens, by their frequency in the training text.

LOSS_BY_FREQUENCY = TableSchema(
    name="loss_by_frequency",
    description="Mean loss of frequent and rare tokens, by decile of the types in the counted text.",
    light=True,
    columns=(
        Column(
            "decile",
            "int64",
            "",
            "decile of the types by frequency in the counted text, from 0, the most frequent; -1: types "
            "that never occur in it",
        ),
        Column("corpus", "string", "", "text in which tokens were counted"),
        Column("types", "int64", "types", "types of the decile among the predicted tokens"),
        Column(
            "log_frequency",
            "float64",
            "ln of a share",
            "mean over these types of ln((n + 1/2) / (N + V/2)): n of the N counted tokens are of the type; V types",
        ),
        *estimate_columns(
            "nats per token",
            "mean loss of the decile's tokens",
            "mean loss of the same tokens by their frequency alone",
            "predicted tokens",
        ),
    ),
)


class LossByFrequency(AbstractLossMeasure):
    r"""The mean loss of the tokens in each decile of token types (`frequency_deciles`), in nats.

    Types are counted in the training corpus if the caller names it, or else in the measured corpus, so that deciles are
    the same at every checkpoint. The baseline is each decile's own unigram loss: only the improvement on it was learned
    from context.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.

    Source: [@chang2022].
    """

    by_token = True
    table: ClassVar[TableSchema] = LOSS_BY_FREQUENCY

    def rows(self, reader: Reader, found: TokenLosses) -> Iterator[dict[str, Any]]:
        """A row for each decile with a predicted token."""
        model = counted_ngrams(reader, 1, found.types)
        deciles = frequency_deciles(model.counts)
        of_tokens = deciles[found.labels]
        for decile in np.unique(of_tokens).tolist():
            at = of_tokens == decile
            types = np.unique(found.labels[at])
            losses, unigram, counts = (
                np.bincount(found.blocks[at], weights, NUM_BLOCKS).astype(np.float64)
                for weights in (found.losses[at], found.unigram[at], None)
            )
            numbers = ratio_estimate(losses, counts, float(unigram.sum() / counts.sum()), scale="positive")
            named = {"decile": decile, "corpus": reader.counted.name, "types": len(types)}
            yield {**named, "log_frequency": float(np.log(model.unigram[types]).mean()), **numbers}


# The loss of each token of a text, by its position.

LOSS_BY_POSITION = TableSchema(
    name="loss_by_position",
    description="Mean loss of the first, second, ... token of a text: the next token for a causal LM or a decoder that "
    "reads the reference, the masked token for a masked LM.",
    light=True,
    columns=(
        Column(
            "position",
            "int64",
            "tokens",
            "position of the predicted token among the ordinary tokens of its text, from 1; the end-of-text token "
            "comes after the last",
        ),
        *estimate_columns(
            "nats per token",
            "mean loss of the tokens at that position",
            "mean loss of the same tokens by their frequency alone, counted in the training corpus where it is known",
            "predicted tokens",
        ),
    ),
)


class LossByPosition(AbstractLossMeasure):
    r"""\(L_p\): the mean loss of the p-th token, nats.

    Early and late positions come from texts of different lengths; the baseline, the unigram loss of the same tokens,
    shows how much of a difference is due to the tokens. Padding does not count, so batches do not affect the result.

    Args:
        sentences: At most this many, chosen by a hash of their text: the same at every checkpoint.

    Source: [@olsson2022context].
    """

    by_token = True
    table: ClassVar[TableSchema] = LOSS_BY_POSITION

    def rows(self, reader: Reader, found: TokenLosses) -> Iterator[dict[str, Any]]:
        """A row for each position with a predicted token."""
        longest = int(found.positions.max())
        place = found.blocks * longest + found.positions - 1
        sums = [
            np.bincount(place, weights, NUM_BLOCKS * longest).reshape(NUM_BLOCKS, longest)
            for weights in (found.losses, found.unigram, None)
        ]
        losses, unigram, counts = (one.astype(np.float64) for one in sums)
        for position in np.flatnonzero(counts.sum(axis=0)).tolist():
            guessed = float(unigram[:, position].sum() / counts[:, position].sum())
            numbers = ratio_estimate(losses[:, position], counts[:, position], guessed, scale="positive")
            yield {"position": position + 1, **numbers}


# The distance of frequent and rare tokens' embeddings from their final values.

EMBEDDING_CHANGE = TableSchema(
    name="embedding_change",
    description="Distance of rows of the input embedding matrix from those of the last checkpoint, by decile of "
    "the types in the counted text.",
    light=True,
    columns=(
        Column(
            "decile",
            "int64",
            "",
            "decile of the types by frequency in the counted text, from 0, the most frequent; -1: types "
            "that never occur in it, including special ones",
        ),
        Column("types", "int64", "types", "types of the decile, one row each"),
        Column(
            "value",
            "float64",
            "",
            "displacement: |E - F| / |F - mean F| over the decile's rows, E of the checkpoint, F of the last "
            "checkpoint, mean F over all rows; not aligned",
        ),
    ),
)


def embedding_change(model: Model, final: Model, counts: Int[np.ndarray, " V"]) -> pd.DataFrame:
    r"""The table `EMBEDDING_CHANGE`: \(\lVert E_t - E_T \rVert_F / \lVert E_T - \bar E_T \rVert_F\) by decile.

    Args:
        model: The checkpoint, t.
        final: The last one, T.
        counts: How often each type occurs in the training text.

    Raises:
        UserError: The models have embeddings of different shapes.
    """
    now, last = _embeddings(model), _embeddings(final)
    if now.shape != last.shape:
        raise UserError(
            f"Embeddings are compared between checkpoints of one training. {model.name} has the shape {now.shape}, "
            f"{final.name} {last.shape}."
        )
    places = np.full(len(now), -1)
    known = min(len(now), len(counts))
    places[:known] = frequency_deciles(counts)[:known]
    moved, spread = (np.square(one).sum(axis=1) for one in (now - last, last - last.mean(axis=0)))
    rows = [
        {"decile": int(decile), "types": int(at.sum()), "value": float(np.sqrt(moved[at].sum() / spread[at].sum()))}
        for decile in np.unique(places)
        for at in [places == decile]
        if spread[at].sum() > 0
    ]
    return EMBEDDING_CHANGE.conform(pd.DataFrame(rows, columns=EMBEDDING_CHANGE.column_names))


def _embeddings(model: Model) -> np.ndarray:
    """The input embedding matrix, (V, D), float64."""
    return weight_of(model.module.get_input_embeddings()).cpu().double().numpy()
