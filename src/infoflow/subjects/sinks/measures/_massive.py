"""Massive activations: how far the largest entries of a state exceed the others, and in which dimensions and tokens."""

# B sentence, T token, D width, C class of tokens

from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from infoflow.flow import PassOptions, Reader, forward
from infoflow.heads._head_measure import Roles
from infoflow.models import tap
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._tokens import CLASSES, TOKEN, AbstractSentenceMeasure, BlockSums, classes_of

ANY, EVERY = "any", -1
TIMES = {"above_100": 100.0, "above_1000": 1000.0}  # multiples of the median
_MASSIVE = 100.0  # smallest magnitude of a massive activation
_SHOWN, _LEAST = 8, 0.01  # maximum number of dimensions of a layer, and the share of sentences that each needs
_HALF = NormalDist().inv_cdf(0.75)  # median magnitude of a normal distribution

STATISTIC = Column(
    "statistic",
    "string",
    "",
    "largest: the largest magnitude as a multiple of the median magnitude of the sentence's state; above_100, "
    "above_1000: activations of at least 100 or 1,000 times the median; massive: of at least 1,000 times and above 100",
)
DIMENSION = Column("dimension", "int64", "", "dimension of the state, from 0; −1: all")
MASSIVE_ACTIVATION = TableSchema(
    name="massive_activation",
    version=1,
    description="How far the largest activations of a layer's states exceed the others, how many sentences have "
    "such activations, in which dimensions (the eight most frequent ones of a layer) and on which tokens.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state, 0: embeddings"),
        DIMENSION,
        TOKEN.named(
            "token", f"any: all tokens (shares of sentences); otherwise shares of activations. {TOKEN.description}"
        ),
        STATISTIC,
        *estimate_columns(
            "ratio (largest), else share",
            "mean over sentences; by token: share of these activations that are on the class",
            "largest: value for normally distributed activations; share of sentences: 0, as for normally distributed "
            "ones; by dimension: the mean over all dimensions; by token: the class's share of tokens",
            "sentences; by token: activations",
        ),
    ),
)


class MassiveActivations(AbstractSentenceMeasure):
    r"""Activations that are far larger than the others of their sentence and layer.

    $$ r = \frac{\max_{t,d} |h_{td}|}{\operatorname{median}_{t,d} |h_{td}|}, \qquad
       \text{massive: } |h_{td}| > 100 \text{ and } |h_{td}| \ge 1000 \operatorname{median} |h| $$

    h are the states of one sentence at one layer, before a final norm, special tokens included. The authors' criterion
    is "massive"; few small models meet it, so the ratio r and the shares at 100 and 1,000 times are measured in every
    model.

    Args:
        sentences: Maximum number of sentences.

    Source: [@sun2024massive]; the median over all tokens and dimensions of a sequence follows their code.
    """

    table: ClassVar[TableSchema] = MASSIVE_ACTIVATION

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        roles, sums = Roles.of(reader), BlockSums()
        for batch in self.batches(reader, options):
            with torch.inference_mode(), tap(reader.model, hidden=True) as seen:
                forward(reader.model, batch)
                for stack, layers in seen.hidden.items():
                    classes = classes_of(roles, batch.streams[stack], stack)
                    for layer, states in enumerate(layers):
                        for name, values in _of_sentences(states, classes).items():
                            sums.add((stack, layer), name, values, batch.blocks)
        rows = [{"stack": stack, "layer": layer, **row} for (stack, layer), own in sums for row in _rows(own)]
        return pd.DataFrame(rows, columns=self.table.column_names)


def magnitudes(states: Float[Tensor, "sentence token width"], real: Tensor) -> tuple[Tensor, Tensor]:
    """Magnitudes with NaN at padding, and each sentence's median (B,).

    The median is the lower one of two middle values, as in the authors' code.
    """
    sizes = states.float().abs().masked_fill(~real.to(states.device).unsqueeze(2), torch.nan)
    return sizes, sizes.flatten(1).nanmedian(dim=1).values


def _of_sentences(
    states: Float[Tensor, "sentence token width"], classes: Int[Tensor, "sentence token"]
) -> dict[str, Tensor]:
    """For each sentence, its ratio, that of normally distributed activations, and activations above each threshold.

    The entry with a threshold's name tells whether there is such an activation, then whether there is one in each
    dimension; the entry `…/token` holds the number of such activations on each class of tokens.
    """
    classes = classes.to(states.device)
    sizes, median = magnitudes(states, classes >= 0)
    ratio = torch.where(median[:, None, None] > 0, sizes / median[:, None, None], torch.nan)
    of_class = one_hot(classes + 1, len(CLASSES) + 1)[..., 1:].double()
    largest = ratio.nan_to_num(-1).amax((1, 2))
    num = of_class.sum((1, 2)) * states.shape[2]
    known = (largest >= 0).double()
    found = {"largest": torch.stack([largest.clamp(min=0), _normal(num), known], dim=1), "tokens": of_class.sum(1)}
    tests = {name: ratio >= times for name, times in TIMES.items()}
    tests["massive"] = tests["above_1000"] & (sizes > _MASSIVE)
    for name, above in tests.items():
        by_dimension = above.any(1)
        found[name] = torch.cat([by_dimension.any(1, keepdim=True), by_dimension], dim=1)
        found[f"{name}/token"] = torch.einsum("btc,bt->bc", of_class, above.sum(2).double())
    return found


def _normal(num: Tensor) -> Tensor:
    """The approximate largest of `num` normally distributed activations, as a multiple of their median magnitude."""
    largest = torch.special.ndtri(1 - 0.5 / (2 * num.double()).clamp(min=1))
    return largest / _HALF


def _rows(sums: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    ratio, normal, known = sums["largest"].T
    place, tokens = {DIMENSION: EVERY, "token": ANY}, sums["tokens"].sum(axis=0)
    control = normal.sum() / max(known.sum(), 1)
    yield {**place, STATISTIC: "largest", **ratio_estimate(ratio, known, control, "positive")}
    for name in (*TIMES, "massive"):
        found = sums[name]
        yield {**place, STATISTIC: name, **ratio_estimate(found[:, 0], known, 0.0, "share")}
        by_dimension = found[:, 1:].sum(axis=0)
        most = np.argsort(-by_dimension, kind="stable")[:_SHOWN]
        for dimension in most[by_dimension[most] >= max(1, _LEAST * known.sum())].tolist():
            mean = by_dimension.mean() / known.sum()
            share = ratio_estimate(found[:, 1 + dimension], known, mean, "share")
            yield {**place, DIMENSION: dimension, STATISTIC: name, **share}
        by_token = sums[f"{name}/token"]
        for number, token in enumerate(CLASSES):
            if by_token.sum() and tokens[number]:
                share = ratio_estimate(by_token[:, number], by_token.sum(1), tokens[number] / tokens.sum(), "share")
                yield {**place, "token": token, STATISTIC: name, **share}
