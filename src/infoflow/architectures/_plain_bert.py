"""BERT's blocks without BERT's head: the output matrix reads the top layer directly."""

from typing import ClassVar, final

from transformers import BertConfig, PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.models import PlainBertConfig, PlainBertForMaskedLM, PlainBertLMHeadModel

from ._bert import BESIDE_AN_ENCODER, Bert, encoder_decoder
from ._config import ModelConfig, shape_of
from ._family import AbstractFamily, Layout

_BERT = Bert()


@final
class PlainBert(AbstractFamily):
    """`bert` with logits W h + b of the top layer's states for all objectives, as in the published comparison.

    BERT transforms them first (a dense layer, an activation, a norm), so that its language models may move a part of
    the prediction where no layer shows it; a translation encoder has no such part. Blocks have exactly the initial
    values of `bert`.
    """

    name: ClassVar[str] = "plain-bert"
    layouts: ClassVar[tuple[Layout, ...]] = ("encoder", "decoder", "encoder-decoder")
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "encoder": ("", ""),
        "decoder": ("", ""),
        "encoder-decoder": ("encoder.", "bert."),
    }

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        """See `AbstractFamily.build`."""
        shape = shape_of(config, vocabulary, layers)
        if layout == "encoder":
            return PlainBertForMaskedLM(PlainBertConfig(**shape))
        if layout == "decoder":
            return PlainBertLMHeadModel(PlainBertConfig(**shape, is_decoder=True))
        second = PlainBertConfig(**shape_of(config, target, config.decoder_depth), **BESIDE_AN_ENCODER)
        return encoder_decoder(BertConfig(**shape), second, PlainBertLMHeadModel, target)

    def num_parameters(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> int:
        """Parameters of the matrices, without biases."""
        return _BERT.num_parameters(layout, config, vocabulary, target, layers)  # the transform is not counted there
