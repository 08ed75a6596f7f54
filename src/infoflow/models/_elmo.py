"""ELMo: an LSTM language model in each direction, with the states of both concatenated in each layer."""

# B sentence, T token, D width of one direction

import warnings
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from ._anatomy import Layer, Stack
from ._own_models import AbstractOwnModel


class ElmoConfig(PreTrainedConfig):
    """The shape; `hidden_size` is of one direction, `cell_size` of the LSTMs before their projection."""

    model_type = "infoflow-elmo"

    def __init__(
        self,
        vocab_size: int = 1000,
        hidden_size: int = 128,
        cell_size: int = 512,
        num_hidden_layers: int = 2,
        dropout: float = 0.1,
        initializer_range: float = 0.02,
        max_position_embeddings: int = 512,
        **more: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.cell_size = vocab_size, hidden_size, cell_size
        self.num_hidden_layers, self.dropout = num_hidden_layers, dropout
        self.initializer_range, self.max_position_embeddings = initializer_range, max_position_embeddings
        super().__init__(**more)


class _Direction(nn.Module):
    """One LSTM of one layer, with dropout, and a residual connection from the second layer on."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(config.hidden_size, config.cell_size, proj_size=config.hidden_size, batch_first=True)
        self.dropout = nn.Dropout(config.dropout)
        self.residual = residual

    def forward(self, states: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch token width"]:
        with warnings.catch_warnings():  # torch warns once that a backend lacks projections
            warnings.filterwarnings("ignore", "LSTM with projections", UserWarning)
            found = self.dropout(self.lstm(states)[0])
        return states + found if self.residual else found


class ElmoBlock(nn.Module):
    """One layer: an LSTM over the first half of the states, and one from the texts' ends over the second half."""

    def __init__(self, config: ElmoConfig, residual: bool) -> None:
        super().__init__()
        self.ahead, self.back = _Direction(config, residual), _Direction(config, residual)

    def forward(
        self, hidden_states: Float[Tensor, "batch token both"], turned: Int[Tensor, "batch token"]
    ) -> Float[Tensor, "batch token both"]:
        """The next states; `turned` maps each position of a text to its position when read from the end."""
        ahead, back = hidden_states.chunk(2, dim=-1)
        return torch.cat([self.ahead(ahead), _turn(self.back(_turn(back, turned)), turned)], dim=-1)


class Elmo(AbstractOwnModel):
    """A biLM of LSTMs ([@peters2018deep]): both directions share embeddings and softmax, and no layer mixes them.

    A state concatenates those of the forward and the backward direction; state 0 is the embedding, twice. Token
    embeddings replace the paper's character convolutions; as in the paper, LSTMs are projected to the width of the
    states, and the second layer's input is added to its output.
    """

    config_class = ElmoConfig
    base_model_prefix = "elmo"

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.layers = nn.ModuleList(ElmoBlock(config, residual=index > 0) for index in range(config.num_hidden_layers))
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding | nn.Linear):  # LSTMs keep torch's initialisation
            init.normal_(module.weight, std=self.config.initializer_range)
        if isinstance(module, nn.Linear):
            init.zeros_(module.bias)

    def stacks(self) -> tuple[Stack, ...]:
        """One stack, twice as wide as a direction."""
        layers = tuple(
            Layer(index=index, block=f"layers.{index}", attentions={}, other_paths=True)
            for index in range(self.config.num_hidden_layers)
        )
        return (Stack(name="encoder", causal=False, width=2 * self.config.hidden_size, layers=layers),)

    def get_input_embeddings(self) -> nn.Embedding:
        """The embeddings that both directions share."""
        return self.embeddings

    def get_output_embeddings(self) -> None:
        """None: a state as a whole has no logits, since each direction predicts a different token."""

    def both_ways(
        self, input_ids: Int[Tensor, "batch token"], reversed_ids: Int[Tensor, "batch token"]
    ) -> tuple[Float[Tensor, "batch token width"], Float[Tensor, "batch token width"]]:
        """Last states of the forward direction on the texts, and of the backward one on the reversed texts.

        Padding is on the right, after everything that a direction reads, so it needs no mask.
        """
        ahead, back = self.dropout(self.embeddings(input_ids)), self.dropout(self.embeddings(reversed_ids))
        for layer in self.layers:
            ahead, back = layer.ahead(ahead), layer.back(back)  # type: ignore[operator]
        return ahead, back

    def forward(
        self,
        input_ids: Int[Tensor, "batch token"],
        attention_mask: Int[Tensor, "batch token"] | None = None,
        output_hidden_states: bool = False,
        **_: Any,
    ) -> BaseModelOutput:
        """States of both directions, padding on the right."""
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        turned = _turned(real.sum(dim=1), input_ids.shape[1])
        embedded = self.dropout(self.embeddings(input_ids))
        states = [torch.cat([embedded, embedded], dim=-1)]
        for layer in self.layers:
            states.append(layer(states[-1], turned))
        return BaseModelOutput(
            last_hidden_state=states[-1], hidden_states=tuple(states) if output_hidden_states else None
        )


def _turned(lengths: Int[Tensor, " batch"], longest: int) -> Int[Tensor, "batch longest"]:
    """Position t of a text is taken from position `length - 1 - t`; padding stays in place."""
    places = torch.arange(longest, device=lengths.device).expand(len(lengths), longest)
    mirrored = lengths[:, None] - 1 - places
    return torch.where(mirrored >= 0, mirrored, places)


def _turn(
    states: Float[Tensor, "batch token width"], turned: Int[Tensor, "batch token"]
) -> Float[Tensor, "batch token width"]:
    return states.gather(1, turned[:, :, None].expand_as(states))
