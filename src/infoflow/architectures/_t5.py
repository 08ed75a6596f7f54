"""T5: an encoder and a decoder with relative positions, without biases, normalised by the root of the mean square."""

from typing import Any, ClassVar, final

from transformers import PreTrainedModel, T5Config, T5ForConditionalGeneration

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._config import ModelConfig
from ._family import AbstractFamily, Layout


@final
class T5(AbstractFamily):
    """Hugging Face's T5 (v1.0: one ReLU layer). Encoder and decoder share their embeddings, so one vocabulary."""

    name: ClassVar[str] = "t5"
    layouts: ClassVar[tuple[Layout, ...]] = ("encoder-decoder",)
    two_vocabularies: ClassVar[bool] = False
    learned_positions: ClassVar[bool] = False
    differs: ClassVar[str] = "positions are relative, nothing has a bias, and blocks have other norms"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"encoder-decoder": ("", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        if target != vocabulary:
            raise UserError(
                "t5 has one table of embeddings for both sides, so it reads and writes one vocabulary. Got two, as for "
                "translation.\nSay [corpus] joint_vocabulary = true, train translation on bert, or leave it out."
            )
        model = T5ForConditionalGeneration(
            T5Config(
                vocab_size=vocabulary.size,
                d_model=config.width,
                d_kv=config.width // config.heads,
                d_ff=config.feedforward,
                num_layers=layers,
                num_decoder_layers=config.decoder_depth,
                num_heads=config.heads,
                feed_forward_proj="relu",
                dropout_rate=config.dropout,
                n_positions=config.positions,
                pad_token_id=vocabulary.pad,
                eos_token_id=vocabulary.end,
                decoder_start_token_id=vocabulary.start,
            )
        )
        generation: Any = model.generation_config
        generation.decoder_start_token_id, generation.pad_token_id = vocabulary.start, vocabulary.pad
        generation.eos_token_id = vocabulary.end
        return model

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices."""
        block = config.block_parameters
        decoder = config.decoder_depth * (block + 4 * config.width**2)
        return layers * block + decoder + vocabulary.size * config.width
