r"""LongT5's local attention, computed as one masked softmax over all tokens through the attention function.

Its own code cuts a text into blocks of r + 1 tokens, each of which attends to itself and its neighbours, and returns
weights by position in three blocks. The same function, with T5's bias b by distance:

$$ A_{ij} = \mathrm{softmax}_j(q_i k_j + b_{j - i} + m_{ij}), \qquad m_{ij} = 0 \text{ where } |i - j| \le r $$
"""

# B batch, H head, T token, N block, L tokens of a block

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.longt5.modeling_longt5 import LongT5LocalAttention

from ._attention import attended, unplaced_call


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
        call = attended(
            unplaced_call(
                self,
                (heads(self.q), heads(self.k), heads(self.v)),
                mask=position_bias[1],
                scaling=1.0,
                dropout=self.dropout,
                position_bias=position_bias[0],
            )
        )
        output = self.o(call.context().transpose(1, 2).flatten(2))
        return (output, position_bias, *((call.weights,) if output_attentions else ()))

    def _bias(self, length: int, like: Tensor) -> Tensor:
        """By head and distance, (1, H, T, T)."""
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
    """Converts values by token and position in the three blocks around it (K = 3 L) to token by token: (B, T, T).

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
