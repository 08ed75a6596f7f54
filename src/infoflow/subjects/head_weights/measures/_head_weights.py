"""What a head's weights show about copying and about its preferred offset, compared with random matrices."""

# D width, d head width, T position, R random draw

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import UserError, stream
from infoflow.heads._head_measure import HEAD_KEYS
from infoflow.models import Model, Stack
from infoflow.results import Column, TableSchema

from ._matrices import HeadMatrices, head_matrices, position_states, token_map, unknown_layout

STATISTIC = Column(
    "statistic",
    "string",
    "",
    "copying: sum of the eigenvalues of the OV circuit over the sum of their magnitudes, between tokens; offset: share "
    "of positions whose best key by position lies at `offset`; preferred: this share at the head's best offset",
)
OFFSET = Column("offset", "int64", "tokens", "position of the key minus that of the query; 0 for copying")
HEAD_WEIGHTS = TableSchema(
    name="head_weights",
    version=1,
    description="What the weights of each head of self-attention show, without text: whether it raises the logit of "
    "the token that it reads, and which offset its queries and keys of positions prefer. Weights are not a sample, so "
    "these numbers have no interval; the control has one.",
    columns=(
        *HEAD_KEYS,
        STATISTIC,
        OFFSET,
        Column("value", "float64", "share, or score from −1 to 1", "the statistic"),
        Column("baseline", "float64", "as value", "mean over random matrices with the head's singular values"),
        Column("control_low", "float64", "as value", "2.5 % quantile over the same random matrices"),
        Column("control_high", "float64", "as value", "97.5 % quantile over the same random matrices"),
    ),
)


class HeadWeights(Intervention):
    r"""Copying score and preferred offset of each head, by its weights alone.

    $$ \mathrm{copying} = \frac{\sum_k λ_k}{\sum_k |λ_k|}, \quad λ = \mathrm{eig}(E\, W_V W_O\, U), \qquad
       \mathrm{share}_o = \frac{1}{|T_o|} \sum_{i \in T_o} \big[\arg\max_j p_i W_Q W_K^\top p_j^\top = i + o\big] $$

    E are embeddings, U is the output matrix without its mean over tokens. The eigenvalues are those of the d × d matrix
    $W_O U E W_V$. A score of 1 means that every direction of tokens that the head reads raises itself. $p_i$ is what
    position i adds to the states before the first block, minus its mean over positions; $T_o$ are the positions with a
    visible key at offset o.

    The gain and centring of the norms before a block and before U are folded in. Left out are the norms' division,
    biases, norms of queries and keys, all other blocks, and all of a masked LM's output head but its last norm and
    matrix, so scores of layers far from embeddings and output are approximate. Copying needs the stack that predicts,
    and embeddings as wide as the model. Offsets need positions that are added to the embeddings, so models with rotary
    or relative positions have no such rows.

    Args:
        positions: Number of positions, T.
        widest: Largest offset that can be preferred.
        draws: Number of random matrices.

    Source: [@elhage2021]; positions and the control are ours.
    """

    table: ClassVar[TableSchema] = HEAD_WEIGHTS

    def __init__(self, positions: int = 48, widest: int = 8, draws: int = 40) -> None:
        if positions < 2 or widest < 1 or draws < 2:
            raise UserError(
                f"positions and draws must be at least 2, widest at least 1. Got {positions}, {draws} and {widest}."
            )
        self.positions, self.widest, self.draws = positions, widest, draws

    def refusal(self, model: Model) -> str | None:
        return unknown_layout(model)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        return self.of(reader.model)

    def of(self, model: Model) -> pd.DataFrame:
        """The table of a model; it needs no text.

        Raises:
            NothingToRead: The model has neither a map between tokens nor positions in its embeddings.
            UserError: Its heads have no such matrices.
        """
        rows = [row for one in model.anatomy.stacks if "self" in one.kinds for row in self._of_stack(model, one)]
        if not rows:
            raise NothingToRead(
                f"{model.name} predicts no token by a matrix as wide as its states, and adds no positions to its "
                "embeddings, so its weights alone show nothing about copying and offsets"
            )
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _of_stack(self, model: Model, one: Stack) -> Iterator[dict[str, Any]]:
        tokens, places = token_map(model, one), position_states(model, one, self.positions)
        if tokens is None and places is None:
            return
        random: dict[tuple[int, str], Any] = {}
        for head in head_matrices(model, one):
            place = dict(zip(HEAD_KEYS, (one.name, "self", head.layer, head.head), strict=True))
            if tokens is not None:
                score, drawn = self._copying(head, tokens, random)
                yield {**place, STATISTIC: "copying", OFFSET: 0, **_against(score, drawn)}
            if places is not None:
                yield from ({**place, **row} for row in self._offsets(head, places, one.causal, random))

    def _copying(
        self, head: HeadMatrices, tokens: Float[Tensor, "D D"], random: dict[tuple[int, str], Any]
    ) -> tuple[float, np.ndarray]:
        own = copying_score(head.output @ tokens @ head.value)
        spectrum = singular_values(head.value, head.output.T)
        key = len(spectrum), "copying"
        if key not in random:
            random[key] = [b.T @ tokens @ a for a, b in self._bases(len(tokens), len(spectrum))]
        return own, np.array([copying_score(one * spectrum) for one in random[key]])

    def _offsets(
        self, head: HeadMatrices, places: Float[Tensor, "T D"], causal: bool, random: dict[tuple[int, str], Any]
    ) -> Iterator[dict[str, Any]]:
        own = self._shares((places @ head.query) @ (places @ head.key).T, causal)
        spectrum = singular_values(head.query, head.key)
        if not spectrum.any():  # the head scores all keys equally
            return
        key = len(spectrum), "offset"
        if key not in random:
            random[key] = [(places @ a, places @ b) for a, b in self._bases(places.shape[1], len(spectrum))]
        drawn = np.stack([self._shares((a * spectrum) @ b.T, causal) for a, b in random[key]])
        names = self._offset_names(causal)
        for number, offset in enumerate(names):
            yield {STATISTIC: "offset", OFFSET: offset, **_against(own[number], drawn[:, number])}
        best = int(np.nanargmax(own))
        yield {STATISTIC: "preferred", OFFSET: names[best], **_against(own[best], np.nanmax(drawn, axis=1))}

    def _offset_names(self, causal: bool) -> list[int]:
        return list(range(-self.widest, 1 if causal else self.widest + 1))

    def _shares(self, scores: Float[Tensor, "T T"], causal: bool) -> np.ndarray:
        """Share of positions whose best key is at each offset; a tie goes to the nearest key."""
        num = len(scores)
        at = torch.arange(num)
        offset = at[None] - at[:, None]
        visible: Bool[Tensor, "T T"] = offset <= 0 if causal else torch.ones(num, num, dtype=torch.bool)
        scores = scores.masked_fill(~visible, -torch.inf)
        best = scores >= scores.amax(1, keepdim=True) - 1e-9 * scores[visible].abs().max()
        chosen = offset.abs().masked_fill(~best, num).argmin(1) - at
        names = [one for one in self._offset_names(causal) if abs(one) < num]
        shares = [float((chosen[(at + one >= 0) & (at + one < num)] == one).double().mean()) for one in names]
        return np.array([shares[names.index(one)] if one in names else np.nan for one in self._offset_names(causal)])

    def _bases(self, width: int, rank: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Two random orthonormal bases for each draw, (D, rank)."""
        for draw in range(self.draws):
            normal = stream("head-weights", draw).standard_normal((2, width, rank))
            yield torch.linalg.qr(torch.from_numpy(normal[0]))[0], torch.linalg.qr(torch.from_numpy(normal[1]))[0]


def _against(value: float, drawn: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"value": value, "baseline": float(drawn.mean()), "control_low": float(low), "control_high": float(high)}


def copying_score(circuit: Float[Tensor, "d d"]) -> float:
    """Sum of the eigenvalues over the sum of their magnitudes; 0 for a matrix of zeros."""
    values = torch.linalg.eigvals(circuit)
    total = float(values.abs().sum())
    return float(values.real.sum()) / total if total else 0.0


def singular_values(left: Float[Tensor, "D d"], right: Float[Tensor, "D d"]) -> Float[Tensor, " d"]:
    """Singular values of left rightᵀ, computed from d × d factors."""
    return torch.linalg.svdvals(torch.linalg.qr(left).R @ torch.linalg.qr(right).R.T)
