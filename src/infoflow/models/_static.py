"""Static vectors: one input and one output vector per token, without layers between them."""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput

from ._anatomy import Stack
from ._own import AbstractOwnModel


class StaticConfig(PreTrainedConfig):
    """Number of tokens, length of their vectors, and the text length of the other models in a study."""

    model_type = "infoflow-static"

    def __init__(
        self, vocab_size: int = 1000, hidden_size: int = 100, max_position_embeddings: int = 512, **more: Any
    ) -> None:
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.max_position_embeddings = max_position_embeddings
        super().__init__(**more)


class StaticVectors(AbstractOwnModel):
    """A model without blocks: the state of a token is its vector, independent of context.

    As in word2vec ([@mikolov2013distributed]) input vectors are initialised uniformly in ±.5 / d, output vectors at 0.
    """

    config_class = StaticConfig
    base_model_prefix = "vectors"

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.input_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.output_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if module is self.input_embeddings:
            init.uniform_(self.input_embeddings.weight, -0.5 / self.config.hidden_size, 0.5 / self.config.hidden_size)
        if module is self.output_embeddings:
            init.zeros_(self.output_embeddings.weight)

    def stacks(self) -> tuple[Stack, ...]:
        """One stack without layers: state 0 is the only state."""
        return (Stack(name="encoder", causal=False, width=self.config.hidden_size, layers=()),)

    def get_input_embeddings(self) -> nn.Embedding:
        """The input vectors, which are measured."""
        return self.input_embeddings

    def get_output_embeddings(self) -> None:
        """None: output vectors score pairs and do not predict a token alone."""

    def scores(self, centers: Int[Tensor, " pair"], others: Int[Tensor, "pair *more"]) -> Float[Tensor, "pair *more"]:
        """Inner product of each center's input vector with the output vectors of other tokens."""
        vectors = self.input_embeddings(centers)
        for _ in range(others.dim() - 1):
            vectors = vectors.unsqueeze(1)
        return (vectors * self.output_embeddings(others)).sum(dim=-1)

    def forward(
        self, input_ids: Int[Tensor, "batch token"], attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutput:
        """The vectors of the tokens."""
        return BaseModelOutput(last_hidden_state=self.input_embeddings(input_ids))
