"""How far a model's matrices have moved, and over how many directions states and changes spread."""

# n token, D width, B bootstrap block

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import SAMPLE_COLUMNS, SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import NUM_BLOCKS, NUM_REPLICATES, UserError, current_display, stream
from infoflow.models import Model, ParameterSlice
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates

_LEAST = 2
_EQUAL = 1e-6  # float32 states of equal inputs differ by less, relative to their length

EFFECTIVE_RANK = TableSchema(
    name="effective_rank",
    version=2,
    description="Number of directions over which a layer's states spread: exp of the entropy of the normalised "
    "eigenvalues of their covariance.",
    light=True,
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state, 0 = embeddings"),
        *estimate_columns(
            "dimensions",
            "effective rank, from 1 to the width; NaN where states do not differ",
            "effective rank of as many isotropic Gaussian states",
            "tokens",
        ),
        *SAMPLE_COLUMNS,
    ),
)


class EffectiveRank(SampleMeasure):
    r"""\(\exp H(p)\) of the eigenvalues λ of the covariance of each layer's states.

    $$ \exp\Big(-\sum_i p_i \ln p_i\Big), \qquad p_i = \frac{λ_i}{\sum_j λ_j} $$

    The value is 1 if all states are on a line, and the width if all directions have the same variance. Error bars are a
    first-order approximation to resampling sentences (`linear_replicates`): without a block's tokens, the eigenvalues
    are approximated by the variances along the eigenvectors of all tokens.

    Args:
        occurrences: At most this many sampled tokens.

    Source: [@roy2007], for singular values; for the covariance [@razzhigaev2024].
    """

    table: ClassVar[TableSchema] = EFFECTIVE_RANK

    def __init__(self, occurrences: int = 10_000) -> None:
        if occurrences < _LEAST:
            raise UserError(f"occurrences must be at least {_LEAST}: one state has no spread. Got {occurrences}.")
        self.occurrences = occurrences
        self.request = SampleRequest(occurrences=occurrences)

    @classmethod
    def planned(cls, plan: Any) -> "EffectiveRank":
        return cls(plan.distance_occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        if len(sample) < _LEAST:
            current_display().note(f"effective_rank of {sample.facts.model} is skipped: the sample has no two tokens.")
            return pd.DataFrame(columns=self.table.column_names)
        rows = [
            {"layer": layer, **_of_layer(sample.states(layer), sample.blocks)} for layer in range(sample.num_states)
        ]
        return pd.DataFrame(rows).assign(stack=sample.facts.stack, **sample.sizes(self.request))


def _of_layer(states: Float[np.ndarray, "n D"], blocks: Int[np.ndarray, " n"]) -> dict[str, Any]:
    centred = states.astype(np.float64)
    length = np.square(centred).sum()
    centred -= centred.mean(axis=0)
    if not np.square(centred).sum() > _EQUAL**2 * length:
        nothing = np.full(NUM_REPLICATES, np.nan)
        return estimate(float("nan"), nothing, isotropic_rank(*states.shape), len(states), scale="positive")
    _, axes = np.linalg.eigh(centred.T @ centred)
    along = centred @ axes
    counts = np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64)
    sums, squares = np.zeros((2, NUM_BLOCKS, along.shape[1]))
    np.add.at(sums, blocks, along)
    np.add.at(squares, blocks, along**2)
    value = float(_rank(_variances(sums.sum(axis=0), squares.sum(axis=0), counts.sum())))
    left = counts.sum() - counts
    without = _rank(_variances(sums.sum(axis=0) - sums, squares.sum(axis=0) - squares, left[:, None]))
    replicates = linear_replicates(value, without)
    return estimate(value, replicates, isotropic_rank(*states.shape), len(states), scale="positive")


def _variances(sums: np.ndarray, squares: np.ndarray, counts: np.ndarray | float) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.maximum(squares / counts - (sums / counts) ** 2, 0)


def _rank(variances: Float[np.ndarray, "*rest D"]) -> np.ndarray | np.floating:
    """Effective rank; NaN if nothing varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = variances / variances.sum(axis=-1, keepdims=True)
        logs = np.where(shares > 0, np.log(shares), 0)
        return np.exp(-(shares * logs).sum(axis=-1))


@cache
def isotropic_rank(num: int, width: int) -> float:
    """The effective rank of `num` draws from an isotropic Gaussian."""
    states = stream("isotropic-effective-rank").standard_normal((num, width))
    states -= states.mean(axis=0)
    return float(_rank(np.clip(np.linalg.eigvalsh(states.T @ states), 0, None)))


# How far a model's matrices have moved from the start and the previous checkpoint, and towards the end.

HEAD, BLOCK, ALL = "head", "block", "all"
_NONE = -1
_COMPARED = {
    "initial": ("from_initial", "cosine_initial"),
    "previous": ("from_previous", "step_length"),
    "final": ("cosine_final",),
}

WEIGHT_CHANGE = TableSchema(
    name="weight_change",
    description="Size of a model's matrices, and how far they have moved. Vectors (biases, gains of norms) are "
    "left out, since they start equal in every training. Tied matrices and repeated layers count once.",
    light=True,
    columns=(
        Column(
            "part",
            "string",
            "",
            "name of a matrix; head: the slices of the query, key, value and output matrices that belong "
            "to one head; block: all matrices of one layer; all: all matrices of the model",
        ),
        Column("stack", "string", "", "encoder or decoder; empty: shared, or both"),
        Column("kind", "string", "", "self or cross (heads and their matrices), or empty"),
        Column("layer", "int64", "", "layer, from 0; -1 outside of the layers"),
        Column("head", "int64", "", "head, from 0; -1: no head"),
        Column(
            "measure",
            "string",
            "",
            "norm: Frobenius norm; from_initial, from_previous: norm of the difference from step 0 and from the "
            "preceding checkpoint, as a share of their norm; step_length: the latter difference in absolute terms, "
            "whose sum over checkpoints is a lower bound of the path; cosine_initial, cosine_final: cosine with step "
            "0 and with the last checkpoint; effective_rank: exp of the entropy of the singular values' shares "
            "(block, all: mean over matrices)",
        ),
        Column("value", "float64", "", "the measure; rows without one are left out"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    part: str
    slices: tuple[ParameterSlice, ...]
    stack: str = ""
    kind: str = ""
    layer: int = _NONE
    head: int = _NONE


def weight_change(
    model: Model, initial: Model | None = None, previous: Model | None = None, final: Model | None = None
) -> pd.DataFrame:
    r"""The table `WEIGHT_CHANGE` for one checkpoint.

    $$ \frac{\lVert θ_t - θ_0 \rVert}{\lVert θ_0 \rVert}, \qquad \frac{\langle θ_t, θ_0 \rangle}{\lVert θ_t \rVert
       \lVert θ_0 \rVert}, \qquad \exp\Big(-\sum_i p_i \ln p_i\Big), \quad p_i = \frac{σ_i}{\sum_j σ_j} $$

    A head's matrix is its slices of Q, K, V and O stacked (4 · head width, model width). Effective rank: [@roy2007].

    Args:
        model: The checkpoint.
        initial: The model before its training; without it, comparisons with it are left out.
        previous: The previous checkpoint.
        final: The last checkpoint.

    Raises:
        UserError: The models have different shapes.
    """
    weights = _matrices(model)
    given = {"initial": initial, "previous": previous, "final": final}
    others = {name: _matrices(other) for name, other in given.items() if other is not None}
    for name, other in others.items():
        _require_same_shapes(model.name, weights, name, other)
    ranks = {name: effective_rank(matrix) for name, matrix in weights.items()}
    rows = []
    for part in _parts(model, weights):
        numbers = _distances(part, weights, others) | {EFFECTIVE_RANK.name: _rank_of_change(part, weights, ranks)}
        keys = {name: getattr(part, name) for name in ("part", "stack", "kind", "layer", "head")}
        rows += [{**keys, "measure": name, "value": value} for name, value in numbers.items() if np.isfinite(value)]
    return WEIGHT_CHANGE.conform(pd.DataFrame(rows, columns=WEIGHT_CHANGE.column_names))


def effective_rank(matrix: Tensor) -> float:
    r"""\(\exp H(p)\) of the shares \(p_i = σ_i / \sum σ\) of the singular values; NaN for a zero matrix.

    >>> round(effective_rank(torch.diag(torch.tensor([1.0, 1.0, 0.0]))), 6)
    2.0
    """
    values = torch.linalg.svdvals(matrix.double())
    total = values.sum()
    if not total > 0:
        return float("nan")
    return float(torch.special.entr(values / total).sum().exp())


def _matrices(model: Model) -> dict[str, Tensor]:
    """Every matrix of the model once, by its first name."""
    named = model.module.named_parameters()
    return {name: parameter.detach().cpu().float() for name, parameter in named if parameter.dim() > 1}


def _require_same_shapes(name: str, weights: dict[str, Tensor], which: str, other: dict[str, Tensor]) -> None:
    ours, theirs = ({key: tuple(one.shape) for key, one in each.items()} for each in (weights, other))
    if ours == theirs:
        return
    odd = next(key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key))
    raise UserError(
        f"Weights are compared between checkpoints of one model. {odd} of {name} has the shape "
        f"{ours.get(odd, 'none')}, of the {which} checkpoint {theirs.get(odd, 'none')}. "
        "Give checkpoints of one training."
    )


def _parts(model: Model, weights: dict[str, Tensor]) -> Iterator[_Part]:
    where: dict[str, set[tuple[str, str, int]]] = {name: set() for name in weights}
    for group in model.anatomy.parameter_groups:
        if group.slice.parameter in weights:
            layer = _NONE if group.layer is None else group.layer
            where[group.slice.parameter].add((group.stack or "", group.kind or "", layer))
    blocks: dict[tuple[str, int], list[ParameterSlice]] = {}
    for name, found in where.items():
        stack, kind, layer = next(iter(found)) if len(found) == 1 else ("", "", _NONE)
        piece = ParameterSlice(parameter=name)
        yield _Part(part=name, slices=(piece,), stack=stack, kind=kind, layer=layer)
        if layer != _NONE:
            blocks.setdefault((stack, layer), []).append(piece)
    yield from _heads(model, weights)
    for (stack, layer), pieces in blocks.items():
        yield _Part(part=BLOCK, slices=tuple(pieces), stack=stack, layer=layer)
    yield _Part(part=ALL, slices=tuple(ParameterSlice(parameter=name) for name in weights))


def _heads(model: Model, weights: dict[str, Tensor]) -> Iterator[_Part]:
    """The heads of attention modules whose four projections are known; a shared module counts once."""
    seen: set[str] = set()
    for one in model.anatomy.attentions():
        projections = (one.query, one.key, one.value, one.output)
        if one.module in seen or any(projection is None for projection in projections):
            continue
        seen.add(one.module)
        for head in range(one.num_heads):
            pieces = [
                # Grouped query heads share a key and value head.
                projection.head(head * projection.num_heads // one.num_heads)[0]
                for projection in projections
                if projection is not None
            ]
            if all(piece.parameter in weights for piece in pieces):
                yield _Part(part=HEAD, slices=tuple(pieces), stack=one.stack, kind=one.kind, layer=one.layer, head=head)


def _distances(part: _Part, weights: dict[str, Tensor], others: dict[str, dict[str, Tensor]]) -> dict[str, float]:
    now = _taken(part.slices, weights)
    square = _dot(now, now)
    numbers = {"norm": square**0.5}
    for name, other in others.items():
        then = _taken(part.slices, other)
        of_other, both = _dot(then, then) ** 0.5, (square * _dot(then, then)) ** 0.5
        distance = sum(float((a - b).double().square().sum()) for a, b in zip(now, then, strict=True)) ** 0.5
        found = {
            f"from_{name}": distance / of_other if of_other else float("nan"),
            f"cosine_{name}": _dot(now, then) / both if both else float("nan"),
            "step_length": distance,
        }
        numbers |= {measure: found[measure] for measure in _COMPARED[name]}
    return numbers


def _taken(slices: Sequence[ParameterSlice], weights: dict[str, Tensor]) -> list[Tensor]:
    return [piece.take(weights[piece.parameter]) for piece in slices]


def _dot(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return sum(float((a.double() * b.double()).sum()) for a, b in zip(first, second, strict=True))


def _rank_of_change(part: _Part, weights: dict[str, Tensor], ranks: dict[str, float]) -> float:
    if part.part != HEAD:
        return float(np.mean([ranks[piece.parameter] for piece in part.slices]))
    # The slice of a projection has the head's width along the dimension in which it is cut.
    matrices = [
        matrix if piece.dim == 0 else matrix.T
        for piece, matrix in zip(part.slices, _taken(part.slices, weights), strict=True)
    ]
    widths = {matrix.shape[1] for matrix in matrices}
    return effective_rank(torch.cat(matrices)) if len(widths) == 1 else float("nan")
