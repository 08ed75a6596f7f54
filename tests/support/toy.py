"""A family that nobody has registered, whole or with one fault that a measurement must not meet."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import eager_attention_forward

WIDTH, HEADS, VOCABULARY = 16, 2, 40


class ToyConfig(PreTrainedConfig):
    model_type = "toy"
    fault: str = ""
    num_hidden_layers: int = 3
    vocab_size: int = VOCABULARY
    max_position_embeddings: int = 64


class ToyAttention(nn.Module):
    num_key_value_groups = 1
    is_causal = False

    def __init__(self, config: ToyConfig) -> None:
        super().__init__()
        self.config, self.scaling = config, (WIDTH // HEADS) ** -0.5
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, states: Tensor, mask: Tensor | None) -> Tensor:
        projections = (self.q_proj, self.k_proj, self.v_proj)
        query, key, value = (one(states).unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in projections)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        context, _ = attend(self, query, key, value, mask, dropout=0.0, scaling=self.scaling)
        return self.o_proj(context.flatten(2))


class ToyBlock(nn.Module):
    def __init__(self, config: ToyConfig, index: int) -> None:
        super().__init__()
        self.fault, self.last = config.fault, index == config.num_hidden_layers - 1
        self.attention = ToyAttention(config)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
        attended = self.attention(hidden_states, mask)
        states = hidden_states + attended
        if self.fault == "second mixer":
            states = states + 0.01 * hidden_states.roll(1, dims=1)
        if self.fault == "batch":
            states = states - states.mean(0, keepdim=True)
        states = states + self.mlp(states)
        if self.fault == "returns attention" or (self.fault == "last returns attention" and self.last):
            return attended, states
        return states


class ToyModel(PreTrainedModel):
    config_class = ToyConfig
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: ToyConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(ToyBlock(config, index) for index in range(config.num_hidden_layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embedding

    def get_output_embeddings(self) -> nn.Module:
        return self.head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, output_hidden_states: bool = False
    ) -> MaskedLMOutput:
        states, mask = self.embedding(input_ids), None
        if attention_mask is not None and self.config.fault != "padding":
            mask = torch.zeros_like(attention_mask, dtype=states.dtype)
            mask = mask.masked_fill(attention_mask == 0, torch.finfo(states.dtype).min)[:, None, None]
            mask = mask.expand(-1, 1, input_ids.shape[1], -1)
        seen = [states]
        for layer in self.layers:
            output = layer(states, mask)
            states = output if isinstance(output, Tensor) else output[1]
            if self.config.fault == "between":
                states = 2 * states
            seen.append(states)
        own = seen if self.config.fault != "own states" else [2 * state for state in seen]
        hidden = tuple(own) if output_hidden_states else None
        return MaskedLMOutput(logits=self.head(states), hidden_states=hidden)


def build_toy(fault: str = "", layers: int = 3) -> ToyModel:
    """A random toy with that fault; none by default."""
    torch.manual_seed(0)
    module = ToyModel(ToyConfig(fault=fault, num_hidden_layers=layers))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()
