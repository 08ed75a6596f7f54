"""Heads of a trained model in the place of a fresh model's: their weights, bit for bit."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import torch

from infoflow.foundation import UserError, stream
from infoflow.models import Attention, Model, ParameterSlice

from ._head_sets import Head, head_set

_PARTS = ("query", "key", "value", "output")


def transplant(donor: Model, fresh: Model, places: Mapping[Head, Head]) -> Model:
    """A copy of `fresh` with heads of `donor`; both models stay as they are.

    A head is its rows of the query, key and value projections, with their biases, and its columns of the output
    projection. All else is the fresh model's: the output projection's bias, norms, feed-forward layers, embeddings,
    and what all heads of a layer share (norms of queries and keys, tables of relative positions).

    Args:
        donor: The trained model.
        fresh: The model to put them into.
        places: The fresh model's head → the donor's head that takes its place.

    Raises:
        UserError: A head does not exist, reads or writes another number of values than the one in whose place it is to
            come, or shares weights with heads that would not come with it.
    """
    head_set(fresh, places)
    head_set(donor, places.values())
    _require_possible(donor, fresh, places)
    module = copy.deepcopy(fresh.module)
    with torch.no_grad():
        for target, source in places.items():
            pieces = zip(head_slices(fresh, [target]), head_slices(donor, [source]), strict=True)
            for into, out_of in pieces:
                given = donor.module.get_parameter(out_of.parameter)
                _put(into, module.get_parameter(into.parameter), out_of.take(given))
    return replace(fresh, module=module)


def head_slices(model: Model, heads: Iterable[Head]) -> list[ParameterSlice]:
    """What belongs to these heads: of each its rows of query, key and value (weight, then bias, where there is one),
    then its columns of the output projection. Heads that share a key and value name it once each.

    Raises:
        UserError: The projections are laid out in a way that is not known.
    """
    attentions = _attentions(model)
    return [piece for head in heads for piece in _of_head(attentions[head[:3]], head[3])]


def shuffled_heads(model: Model, heads: Iterable[Head], seed: int = 0) -> Model:
    """A copy of the model in which each matrix and each bias of these heads has its numbers in random order.

    The distribution of the weights of each stays, what they compute is lost: a control for `transplant`. The order is
    a function of (seed, head, matrix) alone.

    Raises:
        UserError: A head does not exist, or its weights are laid out in a way that is not known.
    """
    chosen = sorted(head_set(model, heads))
    module = copy.deepcopy(model.module)
    with torch.no_grad():
        for head in chosen:
            for number, piece in enumerate(head_slices(model, [head])):
                weight = module.get_parameter(piece.parameter)
                own = piece.take(weight)
                order = torch.from_numpy(stream("shuffled-head", seed, *head, number).permutation(own.numel()))
                _put(piece, weight, own.reshape(-1)[order.to(own.device)].reshape(own.shape))
    return replace(model, module=module)


def _attentions(model: Model) -> dict[tuple[str, str, int], Attention]:
    return {(one.stack, one.kind, one.layer): one for one in model.anatomy.attentions()}


def _of_head(one: Attention, head: int) -> Iterator[ParameterSlice]:
    for part in _PARTS:
        projection = getattr(one, part)
        if projection is None:
            raise UserError(
                f"The {part} projection of {one.module} is laid out in a way that infoflow does not know, so what "
                "belongs to one of its heads is not known either. Choose heads of another layer, or another model."
            )
        yield from projection.head(head // one.group_size if part in ("key", "value") else head)


def _put(piece: ParameterSlice, parameter: torch.Tensor, values: torch.Tensor) -> None:
    assert piece.dim is not None, "a head owns rows or columns"
    indices = piece.indices().to(parameter.device)
    parameter.index_copy_(piece.dim, indices, values.to(parameter.device, parameter.dtype))


def _require_possible(donor: Model, fresh: Model, places: Mapping[Head, Head]) -> None:
    for target, source in places.items():
        _require_fit(donor, fresh, target, source)
        _require_group(donor, fresh, places, target)
        _require_all_layers(fresh, places, target)


def _require_group(donor: Model, fresh: Model, places: Mapping[Head, Head], target: Head) -> None:
    """Heads of the fresh model that share a key and value must get those of one and the same donor."""
    size, sizes = _attentions(fresh)[target[:3]].group_size, _attentions(donor)
    first = target[3] - target[3] % size
    sources = [places.get((*target[:3], first + number)) for number in range(size)]
    shared = {None if one is None else (*one[:3], one[3] // sizes[one[:3]].group_size) for one in sources}
    if None in shared or len(shared) > 1:
        raise UserError(
            f"Heads {first}..{first + size - 1} of {target[0]} {target[1]}-attention layer {target[2]} of {fresh.name} "
            "share a key and value: all of them must come, from heads of the donor that share theirs. Got "
            f"{_named(target)} from {_named(places[target])}. Name the whole group."
        )


def _require_all_layers(fresh: Model, places: Mapping[Head, Head], target: Head) -> None:
    """A head of layers that share their weights comes into all of them."""
    stack = fresh.anatomy.stack(target[0])
    alike = {places.get((*target[:2], layer.index, target[3])) for layer in stack.layers}
    if stack.shared and len({None if one is None else (*one[:2], one[3]) for one in alike}) > 1:
        raise UserError(
            f"All layers of the {stack.name} of {fresh.name} share one set of weights: a head comes into all of them "
            f"or into none. Got {_named(target)} from {_named(places[target])}. Name it in every layer."
        )


def _require_fit(donor: Model, fresh: Model, target: Head, source: Head) -> None:
    """Refuse a head whose weights have other shapes."""
    into, out_of = (list(head_slices(model, [head])) for model, head in ((fresh, target), (donor, source)))
    shapes = [_shapes(fresh, into), _shapes(donor, out_of)]
    if shapes[0] == shapes[1]:
        return
    differing = next((pair for pair in zip(*shapes, strict=False) if pair[0] != pair[1]), (shapes[0], shapes[1]))
    raise UserError(
        "A head can only take the place of one whose weights have the same shapes: as wide a head in as wide a model "
        f"of the same layout. Got {_named(target)} of {fresh.name} with {differing[0]}, {_named(source)} of "
        f"{donor.name} with {differing[1]}. Build the fresh model like the donor."
    )


def _shapes(model: Model, pieces: Iterable[ParameterSlice]) -> list[tuple[str, int | None, tuple[int, ...]]]:
    """Kind of each slice (weight or bias), the side that is cut, and its size."""
    sized = ((piece, model.module.get_parameter(piece.parameter)) for piece in pieces)
    return [(p.parameter.rpartition(".")[2], p.dim, tuple(p.take(weight).shape)) for p, weight in sized]


def _named(head: Head) -> str:
    return f"head {head[3]} of {head[0]} {head[1]}-attention layer {head[2]}"
