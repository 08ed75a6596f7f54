"""Relevance through softmax attention: queries, keys and values jointly, without any dense Jacobian."""

# N seed, H head, T query token, S key token, d query and key width, e value width

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ._rule import EPSILON, Rule, factors

_CHUNK = 1 << 24  # numbers of (head, query, key, width) held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionCore:
    """One sentence's attention between its projections: softmax(scaling · q kᵀ + …) v for every head."""

    query: Float[Tensor, "head query width"]
    key: Float[Tensor, "head key width"]
    value: Float[Tensor, "head key value_width"]
    weights: Float[Tensor, "head query key"]
    scaling: float

    def heads(self, heads: slice) -> "AttentionCore":
        return AttentionCore(
            query=self.query[heads],
            key=self.key[heads],
            value=self.value[heads],
            weights=self.weights[heads],
            scaling=self.scaling,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CoreRelevance:
    """Relevance of an attention's queries, keys and values."""

    query: Float[Tensor, "seed head query width"]
    key: Float[Tensor, "seed key_head key width"]
    value: Float[Tensor, "seed key_head key value_width"]

    def absolute(self) -> Float[Tensor, "seed head 1 1"]:
        parts = (part.abs().sum((2, 3), keepdim=True) for part in (self.query, self.key, self.value))
        return torch.stack(list(parts)).sum(0)

    def scaled(self, factor: Float[Tensor, "seed #head 1 1"]) -> "CoreRelevance":
        return CoreRelevance(query=self.query * factor, key=self.key * factor, value=self.value * factor)


def core_relevance(
    relevance: Float[Tensor, "seed head query value_width"], core: AttentionCore, rule: Rule
) -> CoreRelevance:
    r"""Relevance of q, k and v given that of the heads' outputs.

    With $c_{te}$ the output of a head, the terms $J x$ of its inputs are

    | input | $z$ |
    |---|---|
    | $v_{se}$ | $A_{ts} v_{se}$ |
    | $q_{tf}$ | $s \, (\sum_s A_{ts} v_{se} k_{sf} - c_{te} \sum_s A_{ts} k_{sf}) \, q_{tf}$ |
    | $k_{sf}$ | $s \, A_{ts} (v_{se} - c_{te}) \cdot q_{tf} k_{sf}$ |

    and the function of zeros is zero. The last one is a product of a term without f and one without e, so its positive
    and negative parts add up without a (query · width) × (key · width) matrix. Rescaled jointly for each head, then
    jointly for the layer.
    """
    size = core.weights[0].numel() * (core.query.shape[2] + core.value.shape[2])
    step = max(1, _CHUNK // size)
    parts = [
        _heads_relevance(relevance[:, start : start + step], core.heads(slice(start, start + step)), rule)
        for start in range(0, len(core.weights), step)
    ]
    joined = CoreRelevance(
        query=torch.cat([part.query for part in parts], 1),
        key=torch.cat([part.key for part in parts], 1),
        value=torch.cat([part.value for part in parts], 1),
    )
    wanted_NH = relevance.abs().sum((2, 3), keepdim=True)
    joined = joined.scaled(wanted_NH / (joined.absolute() + rule.epsilon))
    return joined.scaled(wanted_NH.sum(1, keepdim=True) / (joined.absolute().sum(1, keepdim=True) + rule.epsilon))


def _heads_relevance(relevance_NHTe: Tensor, core: AttentionCore, rule: Rule) -> CoreRelevance:
    weights_HTS, value_HSe = core.weights, core.value
    above_HSe, below_HSe = value_HSe.clamp(min=0), value_HSe.clamp(max=0)
    positive_HTe, negative_HTe = weights_HTS @ above_HSe, weights_HTS @ below_HSe
    if rule.softmax == "const":
        up, down = factors(relevance_NHTe, positive_HTe, negative_HTe, rule)
        nothing = relevance_NHTe.new_zeros(())
        return CoreRelevance(
            query=nothing.expand(len(up), *core.query.shape),
            key=nothing.expand(len(up), *core.key.shape),
            value=_values(up, down, weights_HTS, above_HSe, below_HSe),
        )
    through_query_HTef = _query_terms(core)
    query_up_HTef, query_down_HTef = through_query_HTef.clamp(min=0), through_query_HTef.clamp(max=0)
    context_HTe = weights_HTS @ value_HSe
    a_HTSe = (value_HSe.unsqueeze(1) - context_HTe.unsqueeze(2)) * (core.scaling * weights_HTS).unsqueeze(3)
    b_HTSf = core.query.unsqueeze(2) * core.key.unsqueeze(1)
    a_up, a_down, b_up, b_down = a_HTSe.clamp(min=0), a_HTSe.clamp(max=0), b_HTSf.clamp(min=0), b_HTSf.clamp(max=0)
    b_up_HT1S, b_down_HT1S = b_up.sum(3).unsqueeze(2), b_down.sum(3).unsqueeze(2)
    positive_HTe = positive_HTe + query_up_HTef.sum(3) + (b_up_HT1S @ a_up + b_down_HT1S @ a_down).squeeze(2)
    negative_HTe = negative_HTe + query_down_HTef.sum(3) + (b_down_HT1S @ a_up + b_up_HT1S @ a_down).squeeze(2)
    up_NHTe, down_NHTe = factors(relevance_NHTe, positive_HTe, negative_HTe, rule)
    up_HTeN, down_HTeN = up_NHTe.permute(1, 2, 3, 0), down_NHTe.permute(1, 2, 3, 0)
    query_HTfN = query_up_HTef.mT @ up_HTeN + query_down_HTef.mT @ down_HTeN
    with_b_up_HTSN = a_up @ up_HTeN + a_down @ down_HTeN
    with_b_down_HTSN = a_down @ up_HTeN + a_up @ down_HTeN
    key_HSfN = b_up.permute(0, 2, 3, 1) @ with_b_up_HTSN.transpose(1, 2)
    key_HSfN += b_down.permute(0, 2, 3, 1) @ with_b_down_HTSN.transpose(1, 2)
    return CoreRelevance(
        query=query_HTfN.permute(3, 0, 1, 2),
        key=key_HSfN.permute(3, 0, 1, 2),
        value=_values(up_NHTe, down_NHTe, weights_HTS, above_HSe, below_HSe),
    )


def _values(up_NHTe: Tensor, down_NHTe: Tensor, weights_HTS: Tensor, above_HSe: Tensor, below_HSe: Tensor) -> Tensor:
    return above_HSe * (weights_HTS.mT @ up_NHTe) + below_HSe * (weights_HTS.mT @ down_NHTe)


def _query_terms(core: AttentionCore) -> Float[Tensor, "head query value_width width"]:
    """z of the queries: only terms of the same token matter."""
    weights_HTS, value_HSe, key_HSf = core.weights, core.value, core.key
    products_HSef = value_HSe.unsqueeze(3) * key_HSf.unsqueeze(2)
    mean_HTef = (weights_HTS @ products_HSef.flatten(2)).unflatten(2, products_HSef.shape[2:])
    context_HTe, mean_key_HTf = weights_HTS @ value_HSe, weights_HTS @ key_HSf
    mean_HTef -= context_HTe.unsqueeze(3) * mean_key_HTf.unsqueeze(2)
    return mean_HTef * (core.scaling * core.query).unsqueeze(2)


def rescaled_jointly(parts: tuple[Tensor, ...], wanted: Float[Tensor, "seed 1 1"]) -> tuple[Tensor, ...]:
    """Several relevances scaled by one number for each seed, so that their absolute sums add up to `wanted`."""
    total = torch.stack([part.abs().sum((1, 2), keepdim=True) for part in parts]).sum(0)
    return tuple(part * (wanted / (total + EPSILON)) for part in parts)
