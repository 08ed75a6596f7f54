"""The divergence of a checkpoint's predictions from the last one's, and from another seed's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._convergence_measure import References
from ._token_losses import SENTENCES, checked_sentences, scored_tokens

# The divergence between a checkpoint's predictions and those of the last one.


_FLOOR = 1e-10
_ALL = -1

PREDICTION_DIVERGENCE = TableSchema(
    name="prediction_divergence",
    version=1,
    description="Divergence of a checkpoint's predictions from those of the last checkpoint on the same tokens.",
    light=True,
    columns=(
        Column(
            name="position",
            dtype="int64",
            unit="tokens",
            description="position of the predicted token, from 1; -1: mean over all predicted tokens",
        ),
        *estimate_columns(
            "nats per token",
            "KL(last checkpoint || this one), mean over predicted tokens",
            "KL(last checkpoint || every token with the same probability)",
            "predicted tokens",
        ),
    ),
)


def prediction_divergence(
    model: Model,
    final: Model,
    corpus: Corpus,
    sentences: int | None = SENTENCES,
    options: PassOptions | None = None,
    by_position: bool = False,
) -> pd.DataFrame:
    r"""The table `PREDICTION_DIVERGENCE`: \(\mathrm{KL}(p_T \,\|\, p_t)\), with a floor of \(10^{-10}\) under \(p_t\).

    Both models read the same input: the reference so far (causal LM, decoder), or the same hidden tokens (masked LM).

    Source: [@voita2021].

    Args:
        model: The checkpoint, t.
        final: The last one, T.
        corpus: Text to predict.
        sentences: At most this many, chosen by a hash of their text.
        options: Options of the pass.
        by_position: Add a row for each position.

    Raises:
        UserError: The models have no loss, or predict different tokens.
    """
    chosen, number = options or PassOptions(), checked_sentences(sentences)
    both = (scored_tokens(_reader(one, corpus, chosen), chosen, number, back=0) for one in (final, model))
    divergences, uniforms, positions, blocks = [], [], [], []
    for last, now in zip(*both, strict=True):
        if last.log_chances.shape != now.log_chances.shape or not np.array_equal(last.labels, now.labels):
            raise UserError(
                f"{model.name} and {final.name} must predict the same tokens: {now.log_chances.shape[1]} and "
                f"{last.log_chances.shape[1]} types. Give checkpoints of one training."
            )
        chances = last.log_chances.double().exp()
        own = (chances * last.log_chances.double().clamp(min=np.log(_FLOOR))).sum(dim=1)
        floored = torch.clamp(now.log_chances.double(), min=np.log(_FLOOR))
        divergences.append((own - (chances * floored).sum(dim=1)).cpu().numpy())
        uniforms.append((own + np.log(chances.shape[1])).cpu().numpy())
        positions.append(last.positions)
        blocks.append(last.blocks)
    if not divergences:
        raise UserError(f"No sentence of {corpus.name} has a token to predict.")
    of_all = [np.concatenate(each) for each in (divergences, uniforms, positions, blocks)]
    places = [_ALL, *(np.unique(of_all[2]).tolist() if by_position else [])]
    rows = [{"position": place, **_mean(place, *of_all)} for place in places]
    return PREDICTION_DIVERGENCE.conform(pd.DataFrame(rows, columns=PREDICTION_DIVERGENCE.column_names))


def _reader(model: Model, corpus: Corpus, options: PassOptions) -> Reader:
    return Reader(
        model,
        corpus,
        max_length=options.max_length,
        seed=options.seed,
        decoder=len(model.anatomy.stacks) > 1,
        corruption=options.corruption,
    )


def _mean(place: int, values: np.ndarray, uniform: np.ndarray, positions: np.ndarray, blocks: np.ndarray) -> dict:
    at = np.ones(len(values), dtype=bool) if place == _ALL else positions == place
    sums, counts = (np.bincount(blocks[at], weights, NUM_BLOCKS) for weights in (values[at], np.ones(at.sum())))
    return ratio_estimate(sums, counts, float(uniform[at].mean()), scale="positive")


# The divergence between the predictions of two seeds at the same update.


SEED_DIVERGENCE = replace(
    PREDICTION_DIVERGENCE,
    name="seed_divergence",
    description="Divergence of a checkpoint's predictions from those of another seed at the same update, on the same "
    "tokens.",
    light=False,
    made_by="a plan of two seeds or more with seed_divergence in the light or heavy of its [checkpoints] makes it",
    columns=(
        PREDICTION_DIVERGENCE.columns[0],
        *estimate_columns(
            "nats per token",
            "KL(other seed || this one), mean over predicted tokens",
            "KL(other seed || every token with the same probability)",
            "predicted tokens",
        ),
    ),
)


class SeedDivergence(Intervention):
    r"""\(\mathrm{KL}(p'_t \,\|\, p_t)\) of predictions of two trainings at one update t: see `prediction_divergence`.

    Args:
        references: Loads the other seed's checkpoint, as "seed".
        key: Identifies it, in words or hashes, in the keys of results.
    """

    table: ClassVar[TableSchema] = SEED_DIVERGENCE

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)

    def refusal(self, model: Model) -> str | None:
        return "it predicts no token" if model.task == "encoder" else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = prediction_divergence(reader.model, self._references()["seed"], reader.corpus, options=options)
        return SEED_DIVERGENCE.conform(found)
