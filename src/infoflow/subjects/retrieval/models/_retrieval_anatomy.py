"""The parts of a `RetrievalModel`, its loss with fixed candidates, and the depth at which evidence enters."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from infoflow.foundation import UserError, as_tensor
from infoflow.models import Anatomy, Attention, Numbers, ParameterGroup, ParameterSlice, Projection, Stack, discover

from ._library import NULL, without_excluded
from ._reader import Candidates, RetrievalModel, needed_library

READER = "reader"  # the attribute's name, and the prefix of its parameters' names
RETRIEVER, PRIOR = "retriever", "prior"
"""Components and stacks: the retriever's weights; the scale a and the null logit b."""


def retrieval_anatomy(model: RetrievalModel) -> Anatomy:
    """The `Anatomy` of all parameters that are trained with a reader; call it while the model is in evaluation mode.

    Groups of the reader are those of a plain masked LM. All parameters of a block of the retriever form one group, with
    component and stack `retriever`; those outside of its blocks (embeddings, the output map) have no layer.
    """
    own = discover(model.reader)
    groups = tuple(replace(group, slice=_slice_below(group.slice)) for group in own.parameter_groups)
    stacks = tuple(_stack_below(stack) for stack in own.stacks)
    return Anatomy(stacks=stacks, parameter_groups=(*groups, *_embedder_groups(model)))


def _embedder_groups(model: RetrievalModel) -> Iterator[ParameterGroup]:
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad or name.startswith(f"{READER}."):
            continue
        component = RETRIEVER if name.startswith(f"{RETRIEVER}.") else PRIOR
        block = re.search(r"\.layer\.(\d+)\.", name)
        layer, piece = int(block.group(1)) if block else None, ParameterSlice(parameter=name)
        yield ParameterGroup(
            component=component, stack=component, layer=layer, kind=None, slice=piece, size=parameter.numel()
        )


def _below(name: str) -> str:
    return f"{READER}.{name}"


def _slice_below(piece: ParameterSlice) -> ParameterSlice:
    return replace(piece, parameter=_below(piece.parameter))


def _stack_below(stack: Stack) -> Stack:
    layers = []
    for layer in stack.layers:
        attentions = {kind: _attention_below(one) for kind, one in layer.attentions.items()}
        layers.append(replace(layer, block=_below(layer.block), attentions=attentions))
    return replace(stack, layers=tuple(layers))


def _attention_below(one: Attention) -> Attention:
    parts = {
        name: None if (part := getattr(one, name)) is None else _projection_below(part)
        for name in ("query", "key", "value", "output")
    }
    return replace(one, module=_below(one.module), output_projection=_below(one.output_projection), **parts)  # type: ignore[arg-type]


def _projection_below(part: Projection) -> Projection:
    bias = None if part.bias is None else _slice_below(part.bias)
    return replace(part, weight=_slice_below(part.weight), bias=bias)


# Candidates that do not depend on weights, for a loss that is a function of the parameters alone.


@torch.no_grad()
def fixed_choice(
    model: RetrievalModel,
    input_ids: Int[Tensor, "query token"],
    attention_mask: Int[Tensor, "query token"] | None,
    negatives: int,
    gold: np.ndarray,
    exclude: Sequence[Sequence[int]],
    null_only: np.ndarray,
) -> Candidates:
    """The passage that answers each query (`gold`), `negatives` others by BM25, and the null passage.

    While a model trains, its own search finds different passages at each update, and the loss jumps. These candidates
    depend only on the query, so the loss along a path of weights has a gradient everywhere. Their scores are as usual;
    for `gold` and `random`, all passages have equal scores. `exclude` and `null_only` are as in `choose`.
    """
    if negatives < 1:
        raise UserError(f"Fixed candidates need at least 1 passage in addition to the right one. Got {negatives}.")
    if model.source == "none" or null_only.all():
        nothing = np.empty((len(input_ids), 0))
        return Candidates.of(nothing.astype(np.int64), nothing, null_only)
    library = needed_library(model)
    gold = without_excluded(gold, exclude)
    out = [[*own, *([right] if right != NULL else [])] for own, right in zip(exclude, gold.tolist(), strict=True)]
    others = library.by_words(library.words(input_ids), negatives, out).ids
    ids = np.concatenate([gold[:, None], others], axis=1)
    return Candidates.of(ids, source_scores(model, input_ids, attention_mask, ids), null_only)


def source_scores(
    model: RetrievalModel, input_ids: Tensor, attention_mask: Tensor | None, ids: np.ndarray
) -> np.ndarray:
    """Scores of a source without trained scores, (query, passage), and 0 for other sources; undefined at ids of −1."""
    if model.source not in ("bm25", "frozen"):
        return np.zeros(ids.shape)
    library = needed_library(model)
    if model.source == "bm25":
        words = library.words(input_ids)
        return np.stack([library.lexical.scores(one.tolist())[row] for one, row in zip(words, ids, strict=True)])
    assert model.retriever is not None
    if library.dense is None:
        library.dense = library.embed(model.retriever.passages)
    vectors = model.retriever.queries(input_ids, attention_mask)
    found = library.dense.vectors.to(vectors.device)[torch.from_numpy(ids)]
    return (vectors[:, None] * found).sum(dim=-1).div(vectors.shape[-1] ** 0.5).cpu().numpy()


# The depth at which a document's evidence enters.

_LEAST_GAIN = 0.05  # minimum gain at the top; with less, there is no entry to locate


class EvidenceEntry(NamedTuple):
    """Two depths on one curve over states 0..L; NaN if the curve gains too little."""

    half: float  # first state with at least half of the top's gain
    centre: float  # mean state of the steps, weighted by their size


def evidence_entry(gains: Numbers) -> EvidenceEntry:
    r"""The first state with half of the final gain, and the centre of gravity of its steps.

    $$ \mathrm{half} = \min\{l : g_l \ge g_L / 2\}, \qquad
       \mathrm{centre} = \frac{\sum_{l \ge 1} l \, (g_l - g_{l-1})}{\sum_{l \ge 1} (g_l - g_{l-1})} $$

    Negative steps are kept. Both are NaN if the top gains less than 0.05.

    Args:
        gains: (state,): the answer's probability with the document minus that without, for states 0..L.
    """
    values = as_tensor(gains).double()
    if values.ndim != 1 or len(values) < 2 or not bool(torch.isfinite(values).all()):
        raise UserError(f"gains must be finite, one for each of at least two states. Got {tuple(values.shape)}.")
    top, steps = float(values[-1]), values.diff()
    if top < _LEAST_GAIN or float(steps.sum()) == 0:
        return EvidenceEntry(float("nan"), float("nan"))
    half = int((values >= top / 2).nonzero()[0])
    layers = torch.arange(1, len(values), dtype=torch.float64)
    return EvidenceEntry(float(half), float((layers * steps).sum() / steps.sum()))
