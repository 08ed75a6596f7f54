"""GPT-2: normalisation before each sublayer instead of after it."""

from typing import ClassVar, final

from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from infoflow.corpus import Vocabulary

from ._config import ModelConfig
from ._family import AbstractFamily, Layout
from ._joint import BidirectionalPair


@final
class Gpt2(AbstractFamily):
    """Hugging Face's GPT-2, pre-norm and causal.

    Further differences from BERT's blocks: one matrix for query, key and value, a final normalisation, no segment
    embeddings, no transform before the logits.
    """

    name: ClassVar[str] = "gpt2"
    layouts: ClassVar[tuple[Layout, ...]] = ("decoder", "bidirectional-pair")
    differs: ClassVar[str] = "norms stand before each part, and query, key and value are one matrix"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "decoder": ("", ""),
        "bidirectional-pair": ("forwards.", ""),
    }
    second_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("backwards.", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        if layout == "bidirectional-pair":
            stacks = (_decoder(config, vocabulary, layers), _decoder(config, vocabulary, layers))
            return BidirectionalPair(*stacks, head="lm_head")
        return _decoder(config, vocabulary, layers)

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices, without biases."""
        stack = layers * config.block_parameters + config.positions * config.width
        return (2 if layout == "bidirectional-pair" else 1) * stack + vocabulary.size * config.width


def _decoder(config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary.size,
            n_embd=config.width,
            n_layer=layers,
            n_head=config.heads,
            n_inner=config.feedforward,
            n_positions=config.positions,
            activation_function=config.activation,
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.attention_dropout,
            initializer_range=config.deviation,
            pad_token_id=vocabulary.pad,
            bos_token_id=vocabulary.start,
            eos_token_id=vocabulary.end,
        )
    )
