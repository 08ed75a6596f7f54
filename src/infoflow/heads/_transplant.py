"""Exact copies of heads of a trained model in a fresh model, and the tables of such experiments."""

# R bootstrap replicates, P points of a curve

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from infoflow.foundation import UserError, stream
from infoflow.models import Attention, Model, ParameterSlice, require_whole
from infoflow.results import Column, TableSchema, estimate_columns

from ._head_measure import HEAD_KEYS
from ._head_sets import Head, head_set

_PARTS = ("query", "key", "value", "output")


def transplant(donor: Model, fresh: Model, places: Mapping[Head, Head]) -> Model:
    """A copy of `fresh` with heads of `donor`; both models are unchanged.

    A head consists of its rows of the query, key and value projections, with their biases, and its columns of the
    output projection. Everything else stays as in the fresh model: the output projection's bias, norms, feed-forward
    layers, embeddings, and whatever all heads of a layer share (norms of queries and keys, tables of relative
    positions).

    Args:
        donor: The trained model.
        fresh: The model that receives the heads.
        places: The fresh model's head → the donor's head that replaces it.

    Raises:
        UserError: A head does not exist, has other dimensions than the head that it replaces, or shares weights with
            heads that are not copied.
    """
    head_set(fresh, places)
    head_set(donor, places.values())
    _require_possible(donor, fresh, places)
    for one in (fresh, donor):
        require_whole(one.module, one.name, "Transplanting heads")
    module = copy.deepcopy(fresh.module)
    with torch.no_grad():
        for target, source in places.items():
            pairs = zip(head_slices(fresh, [target]), head_slices(donor, [source]), strict=True)
            for into, out_of in pairs:
                given = donor.module.get_parameter(out_of.parameter)
                _put(into, module.get_parameter(into.parameter), out_of.take(given))
    return replace(fresh, module=module)


def head_slices(model: Model, heads: Iterable[Head]) -> list[ParameterSlice]:
    """The parameters of these heads.

    For each head these are its rows of query, key and value (weight, then bias if there is one), then its columns of
    the output projection. A key and value that heads share are listed for each of them.

    Raises:
        UserError: The layout of the projections is unknown.
    """
    attentions = _attentions(model)
    return [piece for head in heads for piece in _of_head(attentions[head[:3]], head[3])]


def shuffled_heads(model: Model, heads: Iterable[Head], seed: int = 0) -> Model:
    """A copy of the model in which each matrix and bias of these heads is shuffled.

    This keeps the distribution of the weights but not their function: a control for `transplant`. The shuffle depends
    only on (seed, head, matrix).
    """
    chosen = sorted(head_set(model, heads))
    require_whole(model.module, model.name, "Shuffling heads")
    module = copy.deepcopy(model.module)
    with torch.no_grad():
        for head in chosen:
            for number, part in enumerate(head_slices(model, [head])):
                weight = module.get_parameter(part.parameter)
                own = part.take(weight)
                order = torch.from_numpy(stream("shuffled-head", seed, *head, number).permutation(own.numel()))
                _put(part, weight, own.reshape(-1)[order.to(own.device)].reshape(own.shape))
    return replace(model, module=module)


def _attentions(model: Model) -> dict[tuple[str, str, int], Attention]:
    return {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}


def _of_head(one: Attention, head: int) -> Iterator[ParameterSlice]:
    for part in _PARTS:
        projection = getattr(one, part)
        if projection is None:
            raise UserError(
                f"The {part} projection of {one.module} has a layout that infoflow does not know, so it is "
                "unclear which weights belong to a head. Choose heads of another layer, or another model."
            )
        yield from projection.head(head // one.group_size if part in ("key", "value") else head)


def _put(part: ParameterSlice, parameter: torch.Tensor, values: torch.Tensor) -> None:
    assert part.dim is not None, "a head owns rows or columns"
    indices = part.indices().to(parameter.device)
    parameter.index_copy_(part.dim, indices, values.to(parameter.device, parameter.dtype))


def _require_possible(donor: Model, fresh: Model, places: Mapping[Head, Head]) -> None:
    for target, source in places.items():
        _require_fit(donor, fresh, target, source)
        _require_group(donor, fresh, places, target)
        _require_all_layers(fresh, places, target)


def _require_group(donor: Model, fresh: Model, places: Mapping[Head, Head], target: Head) -> None:
    """Check that heads of the fresh model that share a key and value get heads of one donor group."""
    size, sizes = _attentions(fresh)[target[:3]].group_size, _attentions(donor)
    first = target[3] - target[3] % size
    sources = [places.get((*target[:3], first + number)) for number in range(size)]
    shared = {None if one is None else (*one[:3], one[3] // sizes[one[:3]].group_size) for one in sources}
    if None in shared or len(shared) > 1:
        raise UserError(
            f"Heads {first}..{first + size - 1} of {target[0]} {target[1]}-attention layer {target[2]} of {fresh.name} "
            "share a key and value: transplant all of them, from donor heads that also share theirs. Got "
            f"{_named(target)} from {_named(places[target])}. Name the whole group."
        )


def _require_all_layers(fresh: Model, places: Mapping[Head, Head], target: Head) -> None:
    """Check that a head of layers with shared weights is copied into all of them."""
    stack = fresh.anatomy.stack(target[0])
    alike = {places.get((*target[:2], layer.index, target[3])) for layer in stack.layers}
    if stack.shared and len({None if one is None else (*one[:2], one[3]) for one in alike}) > 1:
        raise UserError(
            f"All layers of the {stack.name} of {fresh.name} share one set of weights: a head is transplanted into all "
            f"of them or into none. Got {_named(target)} from {_named(places[target])}. Name it in every layer."
        )


def _require_fit(donor: Model, fresh: Model, target: Head, source: Head) -> None:
    """Check that the weights of both heads have the same shapes."""
    into, out_of = (list(head_slices(model, [head])) for model, head in ((fresh, target), (donor, source)))
    shapes = [_shapes(fresh, into), _shapes(donor, out_of)]
    if shapes[0] == shapes[1]:
        return
    differing = next((pair for pair in zip(*shapes, strict=False) if pair[0] != pair[1]), (shapes[0], shapes[1]))
    raise UserError(
        "A head can only replace a head whose weights have the same shapes: the same head width, model width and "
        f"layout. Got {_named(target)} of {fresh.name} with {differing[0]}, {_named(source)} of "
        f"{donor.name} with {differing[1]}. Build the fresh model like the donor."
    )


def _shapes(model: Model, parts: Iterable[ParameterSlice]) -> list[tuple[str, int | None, tuple[int, ...]]]:
    """Kind of each slice (weight or bias), the dimension along which it is cut, and its size."""
    sized = ((piece, model.module.get_parameter(piece.parameter)) for piece in parts)
    return [(p.parameter.rpartition(".")[2], p.dim, tuple(p.take(weight).shape)) for p, weight in sized]


def _named(head: Head) -> str:
    return f"head {head[3]} of {head[0]} {head[1]}-attention layer {head[2]}"


VARIANTS = ("none", "specialised", "random", "shuffled")
"""Replacements of a fresh model's heads.

None; the donor's specialised heads; the same number of random other heads in the same layers; the specialised heads
with each matrix shuffled.
"""

_ARM = Column(
    "arm",
    "string",
    "",
    "what replaces the fresh model's heads: none; specialised: heads of the trained model with roles or importance; "
    "random: as many of its other heads, in the same layers; shuffled: the specialised heads, each matrix shuffled",
)

TRANSPLANT_CURVES = TableSchema(
    name="transplant_curves",
    description="Learning curves of fresh models with heads of a trained model, each in its original layer and "
    "head. All curves of a seed start from the same initial weights, from another seed than the trained model, and "
    "read the same batches in the same order. All points are scored on the same sentences.",
    made_by="a plan with [transplant] on = true makes it",
    columns=(
        _ARM,
        Column("frozen", "bool", "", "whether these heads were frozen (for none: the heads as initialised)"),
        Column("draw", "int64", "", "number of the random draw; 0 for all others"),
        Column("step", "int64", "updates", "optimiser steps of the fresh model so far"),
        Column("source_tokens", "int64", "tokens", "source tokens read up to this step"),
        Column("heads", "int64", "heads", "number of heads that were replaced, or frozen"),
        Column("metric", "string", "", "loss; for translation also bleu, at the last step"),
        *estimate_columns(
            "nats per token (loss), percent (bleu)",
            "score on held-out sentences",
            "score of the trained model that the heads are from",
            "sentences",
        ),
        Column("signature", "string", "", "sacreBLEU's signature; empty for the loss"),
    ),
)

TRANSPLANTED_HEADS = TableSchema(
    name="transplanted_heads",
    version=2,
    description="Heads of a trained model copied into fresh ones, by variant, each into the same layer and head. The "
    "shuffled variant uses the specialised heads.",
    made_by="a plan with [transplant] on = true makes it",
    columns=(
        _ARM,
        Column("draw", "int64", "", "number of the random draw; 0 for specialised heads"),
        *HEAD_KEYS,
        Column("roles", "string", "", "roles that the head holds in the trained model, separated by commas"),
        Column(
            "importance",
            "float64",
            "",
            "expected absolute derivative of the loss with respect to a gate on the head, divided by the layer's norm",
        ),
        Column("rank", "int64", "", "position in the order of choice, from 0"),
        Column(
            "by_chance",
            "float64",
            "roles",
            "upper bound on the number of roles that all heads of the model hold by chance; missing if heads were not "
            "chosen by roles",
        ),
    ),
)


def log_mean(steps: Sequence[int], values_RP: Float[np.ndarray, "row point"]) -> Float[np.ndarray, " row"]:
    r"""Mean of curves over the logarithm of updates: the area under each, divided by its width.

    $$ \frac{1}{\ln s_P - \ln s_1} \int_{\ln s_1}^{\ln s_P} L \, d\ln s $$

    The integral is by the trapezoidal rule, and the result has the units of the values. Early updates, when losses fall
    fast, count as much as late ones. For a single point the result is its value.

    >>> log_mean([1, 10, 100], np.array([[3.0, 2.0, 1.0]])).tolist()
    [2.0]
    """
    logs_P = np.log(np.maximum(np.asarray(steps, dtype=float), 1e-9))
    if len(steps) == 0 or steps[0] < 1 or (np.diff(logs_P) <= 0).any():
        raise UserError(f"The steps of a curve must be ascending numbers from 1. Got {list(steps)[:10]}.")
    if len(steps) == 1:
        return values_RP[:, 0]
    return np.trapezoid(values_RP, logs_P, axis=1) / (logs_P[-1] - logs_P[0])
