"""Local attention of Longformer, LED and LongT5 as one masked softmax: the classes that replace transformers' own."""

# B batch, H head, T token, N block, L tokens of a block
# B batch, H head, T query token, S key token, d head width, D model width

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers.models.led.modeling_led import LEDEncoderSelfAttention
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention
from transformers.models.longt5.modeling_longt5 import LongT5LocalAttention

from ._attention import attended
from ._attention_call import AttentionCall, OtherKeys

# LongT5's local attention, computed as one masked softmax over all tokens through the attention function.
#
# Its own code cuts a text into blocks of r + 1 tokens, each of which attends to itself and its neighbours, and returns
# weights by position in three blocks. The same function, with T5's bias b by distance:
#
# $$ A_{ij} = \mathrm{softmax}_j(q_i k_j + b_{j - i} + m_{ij}), \qquad m_{ij} = 0 \text{ where } |i - j| \le r $$


class DenseLongT5LocalAttention(LongT5LocalAttention):
    """LongT5's local attention as one masked softmax; blocks pass on bias and mask by token."""

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        position_bias: tuple[Tensor, Tensor] | None = None,
        output_attentions: bool = False,
    ) -> tuple[Any, ...]:
        """The heads' mixed output, the bias for the next block, and weights (B, H, T, S) if requested."""
        length, split = hidden_states.shape[1], (self.n_heads, self.key_value_proj_dim)

        def heads(projection: nn.Module) -> Tensor:
            return projection(hidden_states).unflatten(2, split).transpose(1, 2)

        if position_bias is None:
            assert mask is not None, "LongT5 says at its first block which tokens see each other"
            seen_BTT = by_token(mask[:, 0] > 0, length)
            lowest = torch.finfo(hidden_states.dtype).min
            hidden_B1TT = hidden_states.new_zeros(seen_BTT.shape).masked_fill(~seen_BTT, lowest).unsqueeze(1)
            position_bias = (self._bias(length, hidden_states), hidden_B1TT)
        query_BHTd = heads(self.q)
        call = attended(
            AttentionCall(
                module=self,
                num_key_value_heads=self.n_heads,
                query=query_BHTd,
                key=heads(self.k),
                value=heads(self.v),
                weights=query_BHTd,
                mask=position_bias[1],
                scaling=1.0,
                dropout=self.dropout,
                position_bias=position_bias[0],
            )
        )
        output = self.o(call.context().transpose(1, 2).flatten(2))
        return (output, position_bias, *((call.weights,) if output_attentions else ()))

    def _bias(self, length: int, like: Tensor) -> Tensor:
        """The bias by head and distance, (1, H, T, T)."""
        if not self.has_relative_attention_bias:
            return like.new_zeros(1, self.n_heads, length, length)
        place = torch.arange(length, device=like.device)
        bucket = self._relative_position_bucket(
            place[None] - place[:, None],
            bidirectional=not self.is_decoder,
            num_buckets=self.relative_attention_num_buckets,
            max_distance=self.relative_attention_max_distance,
        )
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)


def by_token(blocked_BNLK: Tensor, length: int) -> Tensor:
    """Converts values by token and position in the three blocks around it (K = 3 L) to values by token pair: (B, T, T).

    >>> blocks = torch.arange(1, 13).view(1, 2, 2, 3).repeat_interleave(2, dim=3)  # two blocks of two tokens
    >>> by_token(blocks, 3)[0].tolist()
    [[2, 2, 3], [5, 5, 6], [7, 7, 8]]
    """
    size = blocked_BNLK.shape[2]
    place = torch.arange(length, device=blocked_BNLK.device)
    block, row = place // size, place % size
    column_TT = place[None] - (block[:, None] - 1) * size
    inside = (column_TT >= 0) & (column_TT < 3 * size)
    found = blocked_BNLK[:, block[:, None], row[:, None], column_TT.clamp(0, 3 * size - 1)]
    return found * inside.to(found.dtype)


# Longformer's and LED's attention in bands, computed as one softmax over all tokens through the attention function.
#
# Their own code cuts a text into overlapping chunks, pads it and returns weights by distance, which do not give a
# token's attention row. The same function as one masked softmax:
#
# $$ A_{ij} = \mathrm{softmax}_j(s\, q_i k_j + m_{ij}), \qquad m_{ij} = 0 \text{ where } |i - j| \le w / 2, \text{ or }
# i \text{ or } j \text{ is global} $$
#
# Global tokens attend to all tokens through their own query, key and value projections, and all tokens attend to them.


class _Dense:
    """The forward pass of banded attention as one masked softmax. Its first result equals the family's own."""

    def forward(
        self,
        hidden_states: Float[Tensor, "batch token width"],
        attention_mask: Tensor | None = None,
        is_index_masked: Bool[Tensor, "batch token"] | None = None,
        is_index_global_attn: Bool[Tensor, "batch token"] | None = None,
        is_global_attn: bool | None = None,
        output_attentions: bool = False,
    ) -> tuple[Tensor, ...]:
        assert is_index_masked is not None
        assert is_index_global_attn is not None
        module: Any = self
        split = (module.num_heads, module.head_dim)

        def heads(projection: nn.Module) -> Tensor:
            return projection(hidden_states).unflatten(2, split).transpose(1, 2)

        query_BHTd, others = heads(module.query), None
        if is_global_attn:
            query_BHTd = torch.where(is_index_global_attn[:, None, :, None], heads(module.query_global), query_BHTd)
            others = OtherKeys(
                rows=is_index_global_attn, key=heads(module.key_global), value=heads(module.value_global)
            )
        hidden_BTS = hidden_pairs(
            module.one_sided_attn_window_size, is_index_masked, is_index_global_attn, module.dilation
        )
        mask_B1TS = query_BHTd.new_zeros(hidden_BTS.shape).masked_fill(hidden_BTS, torch.finfo(query_BHTd.dtype).min)
        call = attended(
            AttentionCall(
                module=module,
                num_key_value_heads=module.num_heads,
                query=query_BHTd,
                key=heads(module.key),
                value=heads(module.value),
                weights=query_BHTd,
                mask=mask_B1TS.unsqueeze(1),
                scaling=module.head_dim**-0.5,
                dropout=module.dropout,
                others=others,
            )
        )
        context_BTD = call.context().transpose(1, 2).flatten(2)
        return (context_BTD, *(_own_maps(call, is_index_global_attn) if output_attentions else ()))


def hidden_pairs(
    one_side: int, masked: Bool[Tensor, "batch token"], is_global: Bool[Tensor, "batch token"], dilation: int = 1
) -> Bool[Tensor, "batch query key"]:
    """Keys hidden from a query: padding, and keys beyond `one_side` tokens unless key or query is global.

    With a dilation d only every d-th token is in the window, which then reaches d times as far.
    """
    place = torch.arange(masked.shape[1], device=masked.device)
    apart_TS = (place[:, None] - place[None]).abs()
    near_TS = (apart_TS <= dilation * one_side) & (apart_TS % dilation == 0)
    seen_BTS = near_TS | is_global.unsqueeze(1) | is_global.unsqueeze(2)
    return ~seen_BTS | masked.unsqueeze(1)


def _own_maps(call: AttentionCall, is_global: Tensor) -> tuple[Tensor, ...]:
    """Weights in the family's own form: (B, T, H, S), and those of global tokens (B, H, G, S)."""
    maps = (call.weights.transpose(1, 2),)
    if call.others is None:
        return maps
    most = int(is_global.sum(1).max())
    first = is_global.int().topk(most, dim=1).indices.sort(dim=1).values
    index = first[:, None, :, None].expand(-1, call.weights.shape[1], -1, call.weights.shape[3])
    return (*maps, call.weights.gather(2, index))


class DenseLongformerSelfAttention(_Dense, LongformerSelfAttention):
    """Longformer's self-attention as one masked softmax."""


class DenseLEDEncoderSelfAttention(_Dense, LEDEncoderSelfAttention):
    """LED's encoder self-attention as one masked softmax."""


DENSE: dict[type[nn.Module], type[nn.Module]] = {
    LongformerSelfAttention: DenseLongformerSelfAttention,
    LEDEncoderSelfAttention: DenseLEDEncoderSelfAttention,
    LongT5LocalAttention: DenseLongT5LocalAttention,
}
"""The replacement of each class."""
