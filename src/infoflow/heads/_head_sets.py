"""Heads identified by (stack, kind, layer, head), and replacements for the outputs of ablated heads."""

# V variant, B sentence (of all variants), T token, H head, d head width

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError, as_written, stream
from infoflow.models import Anatomy, HeadCall, Model, Site, tap

Head = tuple[str, str, int, int]
"""(stack, kind, layer, head): ("encoder", "self", 0, 3), ("decoder", "cross", 5, 0); layers and heads from 0."""
HeadSet = frozenset[Head]
"""A set of heads, such as those that are ablated together."""
Block = tuple[str, int]  # (stack, layer): ("encoder", 0); layers from 0
BlockSet = frozenset[Block]


def all_heads(anatomy: Anatomy) -> list[Head]:
    """Every head in order: by stack, kind, layer, head."""
    return [(a.stack, a.kind, a.layer, head) for a in anatomy.attentions() for head in range(a.num_heads)]


def head_set(model: Model, heads: Iterable[Sequence[str | int]]) -> HeadSet:
    """Check the heads, and return them as a set."""
    known = {(a.stack, a.kind, a.layer): a.num_heads for a in model.anatomy.attentions()}
    chosen = set()
    for given in heads:
        head = tuple(given)
        if len(head) != 4 or head[:3] not in known or not 0 <= head[3] < known[head[:3]]:
            sites = {}
            for stack, kind, layer in known:
                sites[stack, kind] = max(layer, sites.get((stack, kind), 0))
            there = ", ".join(f"({as_written(s)}, {as_written(k)}, 0..{last}, head)" for (s, k), last in sites.items())
            raise UserError(
                f"heads must be heads of {model.name}, each as (stack, kind, layer, head): {there}, with heads "
                f"0..{max(known.values()) - 1}. Got {as_written(list(given))}. Layers and heads count from 0."
            )
        chosen.add(head)
    return frozenset(chosen)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadScore:
    """The scores by which a head is chosen."""

    head: Head
    importance: float  # sensitivity of the loss to the head
    roles: tuple[str, ...] = ()  # roles that the head has, among those that count


def specialised_heads(scores: Iterable[HeadScore], num: int, choose: Sequence[str]) -> list[Head]:
    """At most `num` heads, best first, and at most half of each layer's heads.

    | `choose` | heads |
    |---|---|
    | `("importance",)` | the most important ones |
    | `("roles",)` | those with a role, the most important first; there may be fewer |
    | `("roles", "importance")` | those with a role, then the most important of the others |

    At least half of a layer's heads of each kind are left, so that `drawn_heads` can draw as many others.
    """
    scores = list(scores)
    ranked = sorted(scores, key=lambda one: (-one.importance, one.head))
    by = {"roles": [one for one in ranked if one.roles], "importance": ranked}
    ordered = list(dict.fromkeys(one.head for name in choose for one in by[name]))
    room = {site: sum(one.head[:3] == site for one in scores) // 2 for site in {one.head[:3] for one in scores}}
    chosen: list[Head] = []
    for head in ordered:
        if len(chosen) < num and room[head[:3]]:
            chosen.append(head)
            room[head[:3]] -= 1
    return chosen


def drawn_heads(pool: Collection[Head], chosen: Collection[Head], draw: int, seed: int = 0) -> list[Head]:
    """Random heads outside `chosen`, as many per layer as `chosen` has, so that differences are not due to layers."""
    drawn: list[Head] = []
    for site in sorted({head[:3] for head in chosen}):
        others = sorted(head for head in pool if head[:3] == site and head not in chosen)
        order = stream("drawn-heads", seed, draw, *site).permutation(len(others))
        num = sum(head[:3] == site for head in chosen)
        assert num <= len(others), "at most half of a layer's heads are chosen"
        drawn += sorted(others[index] for index in order[:num].tolist())
    return drawn


# Replacements for an ablated head's output: zero, its mean, or its output in another sentence.


AblationMode = Literal["zero", "mean", "resample"]
MODES: tuple[AblationMode, ...] = get_args(AblationMode)


def check_mode(mode: str) -> AblationMode:
    if mode not in MODES:
        raise UserError(f"mode must be one of {', '.join(MODES)}. Got {mode}.")
    return mode


Replacement = Callable[[HeadCall], Tensor]
"""Returns the new output of one attention's ablated heads: a tensor that broadcasts to `call.heads` (B, T, H, d)."""


def zeros(call: HeadCall) -> Tensor:
    return call.heads.new_zeros(())


class HeadMeans:
    """Mean output of every head over non-padding tokens of a reference set."""

    def __init__(self) -> None:
        self._sums: dict[Site, Tensor] = {}
        self._counts: dict[Site, float] = {}

    def add(self, site: Site, heads: Float[Tensor, "sentence token head width"], real: Bool[Tensor, "..."]) -> None:
        """Add the outputs at tokens where `real` is True."""
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
        """The donor's output; the head's own output at positions where the donor has no token."""
        given, has = self._outputs[call.site], self._positions[call.stack]
        own = call.heads
        length = min(given.shape[1], own.shape[1])
        times = own.shape[0] // given.shape[0]  # the batch repeated for several variants
        donated = own.clone()
        here = has[:, :length].repeat(times, 1)[:, :, None, None]
        donated[:, :length] = torch.where(here, given[:, :length].repeat(times, 1, 1, 1).to(own), own[:, :length])
        return donated


def head_means(model: Model, batches: Iterable[Mapping[str, Any]]) -> HeadMeans:
    """Mean outputs of all heads over the non-padding tokens of batches (arguments of forward passes)."""
    means = HeadMeans()
    for batch in batches:
        inputs = {
            name: value.to(model.device) if isinstance(value, Tensor) else value
            for name, value in batch.items()
            if name != "labels"
        }
        with torch.no_grad(), tap(model, heads=True) as seen:
            model.module(**inputs)
        for site, heads in by_site(seen.heads).items():
            means.add(site, heads, real_tokens(model, inputs, site.stack))
    return means


def by_site(heads: Mapping[tuple[str, str], Sequence[Tensor]]) -> dict[Site, Tensor]:
    """The heads' outputs that `tap` recorded, as a dictionary by site."""
    return {
        Site(stack=stack, kind=kind, layer=layer): outputs
        for (stack, kind), layers in heads.items()
        for layer, outputs in enumerate(layers)
    }


def real_tokens(model: Model, inputs: Mapping[str, Any], stack: str) -> Bool[Tensor, "sentence token"]:
    """Mask of the tokens in a forward pass's arguments that are not padding, for the stack that reads them."""
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
    """For each sentence of a batch, the index of another sentence: the next longer one if there is one."""
    if len(lengths) < 2:
        raise UserError(
            "Resampling takes a head's output from another sentence, and the batch has one sentence only. Give a "
            "reference: a batch of other sentences, or a corpus."
        )
    order = torch.argsort(lengths, stable=True)
    donors = torch.empty_like(order)
    donors[order] = order.roll(-1)
    donors[order[-1]] = order[-2]
    return donors


class HeadEdit:
    """Replaces heads at the input of the output projections, by default with zero.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`); each of these variants replaces a different set of
    heads.
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
