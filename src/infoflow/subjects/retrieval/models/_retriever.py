"""A dense retriever: queries and passages as vectors, with their inner product as score."""

import math
from copy import deepcopy
from typing import Any, Literal, final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, PreTrainedModel

from infoflow.foundation import UserError

Pooling = Literal["mean", "first"]


class RetrieverConfig(BertConfig):
    """The encoder's configuration and the pooling of its last states."""

    model_type = "infoflow-retriever"
    vector_width: int = 64
    pooling: str = "mean"  # over the text's tokens, or the state of the first one
    shared: bool = True  # one encoder for queries and passages, as REALM; two that begin equal, as DPR


class Tower(nn.Module):
    """An encoder, pooling, a linear map and LayerNorm."""

    def __init__(self, config: RetrieverConfig) -> None:
        super().__init__()
        self.pooling = config.pooling
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.projection = nn.Linear(config.hidden_size, config.vector_width)
        self.norm = nn.LayerNorm(config.vector_width, eps=config.layer_norm_eps)

    def forward(
        self,
        input_ids: Int[Tensor, "text token"],
        attention_mask: Int[Tensor, "text token"] | None = None,
        token_type_ids: Int[Tensor, "text token"] | None = None,
    ) -> Float[Tensor, "text width"]:
        """One vector per text."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": token_type_ids}
        states = self.encoder(**inputs).last_hidden_state
        if self.pooling == "first":
            pooled = states[:, 0]
        else:
            real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            weights = real.to(states.dtype)[:, :, None]
            pooled = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return self.norm(self.projection(pooled))


@final
class Retriever(PreTrainedModel):
    r"""Two encoders with equal initialisation, or one for both; \(f(x, z) = E_q(x) \cdot E_p(z) / \sqrt{d}\).

    LayerNorm bounds the score by \(\sqrt{d}\) while its gain is 1: 8 for 64 dimensions.
    """

    config_class = RetrieverConfig
    base_model_prefix = "queries"
    _supports_sdpa = True
    _supports_attention_backend = True

    def __init__(self, config: RetrieverConfig) -> None:
        super().__init__(config)
        if config.pooling not in ("mean", "first"):
            raise UserError(f'pooling must be "mean" or "first". Got {config.pooling!r}.')
        self.queries = Tower(config)
        self.own_passages = None if config.shared else Tower(config)
        self.post_init()

    @property
    def passages(self) -> Tower:
        """The passage tower."""
        return self.queries if self.own_passages is None else self.own_passages

    def copy_to_passages(self) -> None:
        """Copy the query encoder's weights to the passage encoder."""
        if self.own_passages is not None:
            self.own_passages.load_state_dict(self.queries.state_dict())

    def scores(
        self, queries: Float[Tensor, "query width"], passages: Float[Tensor, "passage width"]
    ) -> Float[Tensor, "query passage"]:
        """Scores of every query with every passage."""
        return queries @ passages.T / math.sqrt(queries.shape[-1])


def build_retriever(config: RetrieverConfig, seed: int = 0) -> Retriever:
    """A retriever with random weights that depend only on (config, seed); its two encoders, if two, are equal."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        retriever = Retriever(config)
    retriever.copy_to_passages()
    return retriever


def tower_copy(tower: Tower) -> Tower:
    """A frozen copy."""
    return deepcopy(tower).requires_grad_(False).eval()


def retriever_config(reader: Any, **changes: Any) -> RetrieverConfig:
    """The default retriever for a reader: two layers of the reader's width, no dropout.

    Args:
        reader: The reader's `BertConfig`.
        changes: Overrides of other fields.
    """
    shape = {name: value for name, value in reader.to_diff_dict().items() if name not in _ABOUT}
    small = {"num_hidden_layers": 2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return RetrieverConfig(**{**shape, **small, **changes})


_ABOUT = ("architectures", "dtype", "model_type", "transformers_version", "is_decoder", "add_cross_attention")

AutoConfig.register(RetrieverConfig.model_type, RetrieverConfig)
AutoModel.register(RetrieverConfig, Retriever)
