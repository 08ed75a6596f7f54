"""How a function's relevance is distributed among its inputs in Voita's LRP, including softmax attention."""

# N seed, T token, O output, I input; H head, T query token, S key token, d query and key width, e value width

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

EPSILON = 1e-5
_CHUNK = 1 << 18  # numbers of a dense transition held at a time: they fit a cache, a third faster than 1 << 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    r"""Options of `method="voita"`.

    For a function $f$ with Jacobian $J$ at $x$, and N numbers in $x$, $z_{oi} = J_{oi} x_i + f(0)_o / N$. With
    `rule="alphabeta"` and `"ratio"` its transition is

    $$ T_{oi} = \alpha \frac{z^+_{oi}}{\sum_i z^+_{oi} + ε} + (1 - \alpha) \frac{z^-_{oi}}{\sum_i z^-_{oi} - ε},
    \qquad T_{oi} = \frac{z_{oi}}{\sum_i z_{oi} + ε s_o} $$

    with $\alpha = ½$ (so both terms add up, and a positive seed stays positive) and $s_o = -1$ if the sum is negative,
    else 1.

    These formulas are for `bias="share"`. `bias="absorb"` leaves $f(0)$ out of the numerators and keeps it in the
    denominators (its positive part with $z^+$, its negative part with $z^-$), so relevance is lost until it is
    rescaled. `softmax="const"` treats the attention weights as constants.

    Source: [@voita2021]. Where [@voita2019heads] leave a choice open, this follows the code released in 2021. The ε in
    LayerNorm is 1e-6 in that code; here it is the model's own.
    """

    rule: str = "alphabeta"
    softmax: str = "joint"
    bias: str = "share"
    alpha: float = 0.5
    epsilon: float = EPSILON

    def __post_init__(self) -> None:
        choices = {"rule": ("alphabeta", "ratio"), "softmax": ("joint", "const"), "bias": ("share", "absorb")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise UserError(f"{name} must be one of {', '.join(allowed)}. Got {getattr(self, name)}.")
        if not 0 <= self.alpha <= 1:
            raise UserError(f"alpha, the weight of the positive part, must lie in 0..1. Got {self.alpha}.")


@dataclass(kw_only=True, slots=True)
class Absorbed:
    """The relevance that biases absorb, as a share of the incoming relevance, over all functions with a bias."""

    lost: float = 0.0
    received: float = 0.0

    @property
    def share(self) -> float:
        return self.lost / self.received if self.received else 0.0


def rescaled(relevance: Tensor, wanted: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The relevance scaled so that its absolute sum over `dims` is `wanted`, up to a deficit of order ε."""
    return relevance * (wanted / (relevance.abs().sum(dims, keepdim=True) + EPSILON))


def factors(
    relevance: Tensor, positive: Tensor, negative: Tensor, rule: Rule, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Factors on the positive and the negative part of z, from their sums for each output (… O).

    `bias` are the outputs' absorbed constants.
    """
    if bias is not None:
        positive, negative = positive + bias.clamp(min=0), negative + bias.clamp(max=0)
    if rule.rule == "ratio":
        total = positive + negative
        sign = torch.where(total < 0, -1.0, 1.0).to(total.dtype)
        factor = relevance / (total + rule.epsilon * sign)
        return factor, factor
    above = relevance * (rule.alpha / (positive + rule.epsilon))
    below = relevance * ((1 - rule.alpha) / (negative - rule.epsilon))
    return above, below


def linear_relevance(
    relevance: Float[Tensor, "seed token output"],
    inputs: Float[Tensor, "token input"],
    weight: Float[Tensor, "output input"],
    bias: Float[Tensor, " output"] | None,
    rule: Rule,
    absorbed: Absorbed,
) -> Float[Tensor, "seed token input"]:
    """Relevance of the inputs of x Wᵀ + b, token by token, rescaled for each token and then for the sentence."""

    def terms(x_TI: Tensor) -> Tensor:
        return weight * x_TI.unsqueeze(1)

    return _by_tokens(relevance, inputs, terms, len(weight), bias, rule, absorbed)


def norm_relevance(
    relevance: Float[Tensor, "seed token width"],
    inputs: Float[Tensor, "token width"],
    gain: Float[Tensor, " width"],
    bias: Float[Tensor, " width"] | None,
    epsilon: float,
    centred: bool,
    rule: Rule,
    absorbed: Absorbed,
) -> Float[Tensor, "seed token width"]:
    """Relevance of the inputs of LayerNorm (`centred`) or RMSNorm, through mean and variance."""
    width = inputs.shape[1]

    def terms(x_TI: Tensor) -> Tensor:
        """J_oi x_i = g_o / s (δ_oi − [1/D if centred] − u_o u_i / D) x_i."""
        moved_TI = x_TI - x_TI.mean(1, keepdim=True) if centred else x_TI
        scale_T1 = (moved_TI.square().mean(1, keepdim=True) + epsilon).rsqrt()
        unit_TI = moved_TI * scale_T1
        z_TOI = unit_TI.unsqueeze(2) * (unit_TI * x_TI / -width).unsqueeze(1)
        if centred:
            z_TOI -= (x_TI / width).unsqueeze(1)
        z_TOI.diagonal(dim1=1, dim2=2).add_(x_TI)
        return z_TOI.mul_((scale_T1 * gain).unsqueeze(2))

    return _by_tokens(relevance, inputs, terms, width, bias, rule, absorbed)


def _by_tokens(
    relevance: Float[Tensor, "seed token output"],
    inputs: Float[Tensor, "token input"],
    terms: Callable[[Tensor], Tensor],
    num_outputs: int,
    bias: Float[Tensor, " output"] | None,
    rule: Rule,
    absorbed: Absorbed,
) -> Float[Tensor, "seed token input"]:
    """Relevance of the inputs given their `terms` z (T, O, I) for a few tokens at a time."""
    width = inputs.shape[1]
    absorbs, parts = rule.bias == "absorb", []
    step = max(1, _CHUNK // max(1, num_outputs * width))
    for start in range(0, len(inputs), step):
        tokens = slice(start, start + step)
        z_TOI = terms(inputs[tokens])
        if bias is not None and not absorbs:
            z_TOI += (bias / width).unsqueeze(1)
        parts.append(transition(relevance[:, tokens], z_TOI, rule, bias if absorbs else None, absorbed))
    per_token = relevance.abs().sum(2, keepdim=True)
    result = rescaled(torch.cat(parts, dim=1), per_token, (2,))
    return rescaled(result, per_token.sum(1, keepdim=True), (1, 2))


def transition(
    relevance: Float[Tensor, "seed token output"],
    z: Float[Tensor, "token output input"],
    rule: Rule,
    bias: Float[Tensor, " output"] | None,
    absorbed: Absorbed,
) -> Float[Tensor, "seed token input"]:
    """$T^\\top R$ for each token, computed from z; not rescaled."""
    above_TOI = z.clamp(min=0)
    below_TOI = z.sub_(above_TOI)
    positive_TO, negative_TO = above_TOI.sum(2), below_TOI.sum(2)
    up_NTO, down_NTO = factors(relevance, positive_TO, negative_TO, rule, bias)
    if bias is not None:
        kept = (up_NTO * positive_TO + down_NTO * negative_TO).abs().sum()
        absorbed.received += float(relevance.abs().sum())
        absorbed.lost += float(relevance.abs().sum() - kept)
    result_TNI = up_NTO.transpose(0, 1) @ above_TOI
    return torch.baddbmm(result_TNI, down_NTO.transpose(0, 1), below_TOI).transpose(0, 1)


def shared_between(
    relevance: Float[Tensor, "seed token width"],
    first: Float[Tensor, "token width"],
    second: Float[Tensor, "token width"],
    rule: Rule,
) -> tuple[Float[Tensor, "seed token width"], Float[Tensor, "seed token width"]]:
    """Divide relevance between the two inputs of an elementwise function by their parts $J x$ of the output.

    The parts are a and b for a residual a + b; for a product a · b both are a · b. Results are rescaled token by token.
    """
    parts = torch.stack([first, second])
    above, below = parts.clamp(min=0), parts.clamp(max=0)
    up, down = factors(relevance, above.sum(0), below.sum(0), rule)
    result = up * above.unsqueeze(1) + down * below.unsqueeze(1)  # (2, N, T, D)
    result = rescaled(result, relevance.abs().sum(2, keepdim=True), (0, 3))
    return result[0], result[1]


def merged(parts: list[Tensor]) -> Tensor:
    """Sum of the relevance that a state gets from several operations; each seed's sum of absolute values is kept."""
    if len(parts) == 1:
        return parts[0]
    wanted = torch.stack([part.abs().sum((1, 2), keepdim=True) for part in parts]).sum(0)
    return rescaled(torch.stack(parts).sum(0), wanted, (1, 2))


_QUERY_CHUNK = 1 << 24  # numbers of (head, query, key, width) held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class AttentionCore:
    """One sentence's attention between its projections: softmax(scaling · q kᵀ + …) v for every head."""

    query: Float[Tensor, "head query width"]
    key: Float[Tensor, "head key width"]
    value: Float[Tensor, "head key value_width"]
    weights: Float[Tensor, "head query key"]
    scaling: float

    def heads(self, heads: slice) -> "AttentionCore":
        own = {name: getattr(self, name)[heads] for name in ("query", "key", "value", "weights")}
        return replace(self, **own)


class CoreRelevance(NamedTuple):
    """Relevance of an attention's queries, keys and values."""

    query: Float[Tensor, "seed head query width"]
    key: Float[Tensor, "seed key_head key width"]
    value: Float[Tensor, "seed key_head key value_width"]

    def absolute(self) -> Float[Tensor, "seed head 1 1"]:
        return torch.stack([part.abs().sum((2, 3), keepdim=True) for part in self]).sum(0)

    def scaled(self, factor: Float[Tensor, "seed #head 1 1"]) -> "CoreRelevance":
        return CoreRelevance(*(part * factor for part in self))


def core_relevance(
    relevance: Float[Tensor, "seed head query value_width"], core: AttentionCore, rule: Rule
) -> CoreRelevance:
    r"""Relevance of queries q, keys k and values v, given the relevance of the heads' outputs.

    With $c_{te}$ the output of a head, A the attention weights and s the scale of the scores, the terms $z = J x$ of
    the inputs are

    | input | $z$ |
    |---|---|
    | $v_{se}$ | $A_{ts} v_{se}$ |
    | $q_{tf}$ | $s \, (\sum_s A_{ts} v_{se} k_{sf} - c_{te} \sum_s A_{ts} k_{sf}) \, q_{tf}$ |
    | $k_{sf}$ | $s \, A_{ts} (v_{se} - c_{te}) \cdot q_{tf} k_{sf}$ |

    For inputs of zero the output is zero, so there is no constant term. The term of $k$ is the product of a factor
    without f and one without e, so its positive and negative parts are summed without a (query · width) × (key · width)
    matrix. The results for q, k and v are rescaled jointly for each head, then for the layer.
    """
    size = core.weights[0].numel() * (core.query.shape[2] + core.value.shape[2])
    step = max(1, _QUERY_CHUNK // size)
    parts = [
        _heads_relevance(relevance[:, start : start + step], core.heads(slice(start, start + step)), rule)
        for start in range(0, len(core.weights), step)
    ]
    joined = CoreRelevance(*(torch.cat(of_heads, 1) for of_heads in zip(*parts, strict=True)))
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
    """z of the queries. A query affects only its own token."""
    weights_HTS, value_HSe, key_HSf = core.weights, core.value, core.key
    products_HSef = value_HSe.unsqueeze(3) * key_HSf.unsqueeze(2)
    mean_HTef = (weights_HTS @ products_HSef.flatten(2)).unflatten(2, products_HSef.shape[2:])
    context_HTe, mean_key_HTf = weights_HTS @ value_HSe, weights_HTS @ key_HSf
    mean_HTef -= context_HTe.unsqueeze(3) * mean_key_HTf.unsqueeze(2)
    return mean_HTef * (core.scaling * core.query).unsqueeze(2)


def rescaled_jointly(parts: tuple[Tensor, ...], wanted: Float[Tensor, "seed 1 1"]) -> tuple[Tensor, ...]:
    """Several relevances scaled by one factor for each seed, so that their absolute sums add up to `wanted`."""
    total = torch.stack([part.abs().sum((1, 2), keepdim=True) for part in parts]).sum(0)
    return tuple(part * (wanted / (total + EPSILON)) for part in parts)
