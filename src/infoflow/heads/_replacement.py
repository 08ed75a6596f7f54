"""Replacements for an ablated head's output: zero, its mean, or its output in another sentence."""

# V variant, B sentence (of all variants), T token, H head, d head width

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.models import HeadCall, Model, Site, tap

from ._head_sets import HeadSet

AblationMode = Literal["zero", "mean", "resample"]
MODES: tuple[AblationMode, ...] = get_args(AblationMode)


def check_mode(mode: str) -> AblationMode:
    if mode not in MODES:
        raise UserError(f"mode must be one of {', '.join(MODES)}. Got {mode}.")
    return mode


Replacement = Callable[[HeadCall], Tensor]
"""The output of one attention's ablated heads: a tensor that broadcasts to `call.heads` (B, T, H, d)."""


def zeros(call: HeadCall) -> Tensor:
    return call.heads.new_zeros(())


class HeadMeans:
    """Mean output of every head over non-padding tokens of a reference set."""

    def __init__(self) -> None:
        self._sums: dict[Site, Tensor] = {}
        self._counts: dict[Site, float] = {}

    def add(self, site: Site, heads: Float[Tensor, "sentence token head width"], real: Bool[Tensor, "..."]) -> None:
        """Add the tokens where `real` is True."""
        total = heads[real].double().sum(dim=0)
        self._sums[site] = self._sums[site] + total if site in self._sums else total
        self._counts[site] = self._counts.get(site, 0) + float(real.sum())

    def __call__(self, call: HeadCall) -> Tensor:
        return (self._sums[call.site] / self._counts[call.site]).to(call.heads)


class DonatedHeads:
    """Outputs of the same heads at the same positions of other sentences."""

    def __init__(self, outputs: Mapping[Site, Tensor], positions: Mapping[str, Bool[Tensor, "sentence token"]]) -> None:
        self._outputs, self._positions = outputs, positions

    def __call__(self, call: HeadCall) -> Tensor:
        """The donor's output; the head's own where the donor has no token."""
        given, has = self._outputs[call.site], self._positions[call.stack]
        own = call.heads
        length = min(given.shape[1], own.shape[1])
        times = own.shape[0] // given.shape[0]  # the batch repeated for several variants
        donated = own.clone()
        here = has[:, :length].repeat(times, 1)[:, :, None, None]
        donated[:, :length] = torch.where(here, given[:, :length].repeat(times, 1, 1, 1).to(own), own[:, :length])
        return donated


def head_means(model: Model, batches: Iterable[Mapping[str, Any]]) -> HeadMeans:
    """Mean outputs of all heads over the non-padding tokens of batches, each the arguments of a forward pass."""
    means = HeadMeans()
    for batch in batches:
        inputs = {name: _moved(value, model) for name, value in batch.items() if name != "labels"}
        with torch.no_grad(), tap(model, heads=True) as seen:
            model.module(**inputs)
        for (stack, kind), layers in seen.heads.items():
            real = real_tokens(model, inputs, stack)
            for layer, heads in enumerate(layers):
                means.add(Site(stack=stack, kind=kind, layer=layer), heads, real)
    return means


def real_tokens(model: Model, inputs: Mapping[str, Any], stack: str) -> Bool[Tensor, "sentence token"]:
    """Which tokens in a forward pass's arguments are not padding, for the stack that reads them.

    Raises:
        UserError: The arguments hold no token ids for that stack.
    """
    prefix = "decoder_" if stack == "decoder" and len(model.anatomy.stacks) > 1 else ""
    ids, mask = inputs.get(f"{prefix}input_ids"), inputs.get(f"{prefix}attention_mask")
    if mask is not None and mask.dim() == 2:
        return mask.bool()
    if ids is None:
        raise UserError(
            f"A reference batch for {model.name} needs {prefix}input_ids (and {prefix}attention_mask where it is "
            f"padded). Got {', '.join(inputs) or 'nothing'}."
        )
    if not prefix or ids.shape[1] == 1:
        return torch.ones_like(ids, dtype=torch.bool)
    # A decoder's input is padded on the right, without a mask; its start token may be the padding token (T5, Marian).
    later = (ids != model.pad_token_id).flip(1).cummax(dim=1).values.flip(1)
    later[:, 0] = True
    return later


def rotated_rows(lengths: Int[Tensor, " sentence"]) -> Int[Tensor, " sentence"]:
    """For each sentence of a batch another one: the next longer if there is one.

    Raises:
        UserError: The batch holds one sentence.
    """
    if len(lengths) < 2:
        raise UserError(
            "Resampling takes a head's output from another sentence, and the batch has one sentence only. Give a "
            "reference: a batch of other sentences, or a corpus."
        )
    order = torch.argsort(lengths, stable=True)
    donors = torch.empty_like(order)
    donors[order] = order.roll(-1)  # the longest takes the shortest's
    donors[order[-1]] = order[-2]
    return donors


def _moved(value: Any, model: Model) -> Any:
    return value.to(model.device) if isinstance(value, Tensor) else value


class HeadEdit:
    """Replaces heads at the input of the output projections, by zero unless configured otherwise.

    Each of V variants of the batch loses its own set.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`).
    """

    def __init__(self, variants: Sequence[HeadSet], replacement: Replacement = zeros) -> None:
        self._replacement = replacement
        self._heads: dict[Site, list[tuple[int, int]]] = {}
        self._num = len(variants)
        for variant, heads in enumerate(variants):
            for stack, kind, layer, head in sorted(heads):
                self._heads.setdefault(Site(stack=stack, kind=kind, layer=layer), []).append((variant, head))

    def __call__(self, call: HeadCall) -> Tensor | None:
        chosen = self._heads.get(call.site)
        if chosen is None:
            return None
        mask_VH = torch.zeros(self._num, call.heads.shape[2], dtype=torch.bool)
        mask_VH[tuple(zip(*chosen, strict=True))] = True
        sentences = call.heads.shape[0] // self._num
        mask_BH = mask_VH.repeat_interleave(sentences, dim=0).to(call.heads.device)
        return torch.where(mask_BH[:, None, :, None], self._replacement(call), call.heads)
