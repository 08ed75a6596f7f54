"""Longformer, GPT-2, T5 and ELMo; and all families by name, as used in plans."""

from typing import Any, ClassVar, final

import torch

from infoflow._transformers import (
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LongformerConfig,
    LongformerForMaskedLM,
    LongformerForTokenClassification,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)
from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError
from infoflow.models import DILATION, FIRST_IS_GLOBAL, ElmoConfig, compute_densely
from infoflow.models import Elmo as ElmoModel

from ._bert import AbstractEncoderFamily, Albert, Bert, PlainBert
from ._family import AbstractFamily, Layout, ModelConfig, shape_of

_SHARE = 8  # positions per token of the window: 4096 / 512 in the published model
_SMALLEST = 4  # tokens: below that, Hugging Face's own code computes no bands
# BERT's parameters with different names here.
_IN_BERT = (
    ("longformer.", "bert."),
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.bias", "cls.predictions.bias"),
)


@final
class Longformer(AbstractEncoderFamily):
    r"""Hugging Face's Longformer ([@beltagy2020longformer]) with BERT's initial values and one attention pattern.

    | `model.attention` | token i attends to token j where                                              |
    |-------------------|-------------------------------------------------------------------------------|
    | `full`            | always                                                                        |
    | `window`          | \|i - j\| ≤ w / 2                                                             |
    | `dilated`         | \|i - j\| ≤ d w / 2 and d divides i - j                                       |
    | `global+window`   | as `window`, or i or j is the first token (own projections)                   |

    In every layer w is `model.attention_window`, by default an eighth of `model.positions`, and d is
    `model.attention_dilation`. Projections of global tokens are initialised as copies of the other projections.
    """

    name: ClassVar[str] = "longformer"
    base: ClassVar[str] = "longformer"

    def check(self, config: ModelConfig) -> None:
        super().check(config)
        window_of(config)

    def masked_lm(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        # First, so that its values are drawn as in BERT itself.
        bert = Bert().masked_lm(config, vocabulary, layers)
        model = LongformerForMaskedLM(_longformer_config(config, vocabulary, layers))
        _begin_as(bert, model, _offset(vocabulary))
        compute_densely(model)
        return model

    def detector(self, config: ModelConfig, vocabulary: Vocabulary, layers: int) -> PreTrainedModel:
        model = LongformerForTokenClassification(_longformer_config(config, vocabulary, layers, num_labels=1))
        compute_densely(model)
        return model


def _longformer_config(config: ModelConfig, vocabulary: Vocabulary, layers: int, **head: Any) -> LongformerConfig:
    shape = shape_of(config, vocabulary, layers)
    shape["max_position_embeddings"] = config.positions + _offset(vocabulary)
    entries: dict[str, Any] = {FIRST_IS_GLOBAL: config.attention == "global+window", **head}
    if config.attention == "dilated":
        entries[DILATION] = config.attention_dilation
    return LongformerConfig(**shape, attention_window=[window_of(config)] * layers, **entries)


def _offset(vocabulary: Vocabulary) -> int:
    """Index of the first position; RoBERTa's position ids start after the padding id."""
    return vocabulary.pad + 1


def window_of(config: ModelConfig) -> int:
    """Tokens in the window, half of them on each side."""
    if config.attention == "full":
        return 2 * config.positions
    if config.attention_window % 2:
        raise UserError(
            "model.attention_window must be even: half of it lies on either side of a token. Got "
            f"{config.attention_window}. Try {config.attention_window + 1}."
        )
    window = config.attention_window or max(_SMALLEST, 2 * (config.positions // (2 * _SHARE)))
    if window > config.positions:
        raise UserError(
            f"The window of longformer must not be larger than model.positions. Got a window of {window} tokens for "
            f"{config.positions} positions. Set model.positions to at least {window}, or leave longformer out."
        )
    return window


def _begin_as(bert: PreTrainedModel, model: PreTrainedModel, offset: int) -> None:
    """Copy BERT's initial values to every parameter; projections of global tokens get those of the other tokens."""
    assert isinstance(bert, BertForMaskedLM)
    values = dict(bert.named_parameters())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = values[_in_bert(name)]
            if "position_embeddings" in name:
                parameter[offset:] = value
            else:
                parameter.copy_(value)


def _in_bert(name: str) -> str:
    name = name.replace("_global.", ".")
    for ours, theirs in _IN_BERT:
        if name.startswith(ours):
            return theirs + name.removeprefix(ours)
    return name


@final
class Gpt2(AbstractFamily):
    """Hugging Face's GPT-2, pre-norm and causal.

    Further differences from BERT's blocks: one matrix for query, key and value, a final normalisation, no segment
    embeddings, no transform before the logits.
    """

    name: ClassVar[str] = "gpt2"
    layouts: ClassVar[tuple[Layout, ...]] = ("decoder", "bidirectional-pair")
    differs: ClassVar[str] = "norms come before each sublayer, and query, key and value are one matrix"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {
        "decoder": ("", ""),
        "bidirectional-pair": ("forwards.", ""),
    }
    second_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("backwards.", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        if layout == "bidirectional-pair":
            from ._compositions import BidirectionalPair  # slow import

            stacks = (_decoder(config, vocabulary, layers), _decoder(config, vocabulary, layers))
            return BidirectionalPair(*stacks, head="lm_head")
        return _decoder(config, vocabulary, layers)


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


@final
class T5(AbstractFamily):
    """Hugging Face's T5 (v1.0: one ReLU layer). Encoder and decoder share their embeddings and so their vocabulary."""

    name: ClassVar[str] = "t5"
    layouts: ClassVar[tuple[Layout, ...]] = ("encoder-decoder",)
    two_vocabularies: ClassVar[bool] = False
    learned_positions: ClassVar[bool] = False
    differs: ClassVar[str] = "positions are relative, nothing has a bias, and blocks have other norms"
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"encoder-decoder": ("", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        if target != vocabulary:
            raise UserError(
                "t5 has one table of embeddings for both sides, so it reads and writes one vocabulary. Got two, as for "
                "translation.\nSet [corpus] joint_vocabulary = true, train translation on bert, or leave it out."
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


_LAYERS = 2  # ELMo's layers in each direction, whatever the depth of the other models


@final
class Elmo(AbstractFamily):
    """A biLM of two layers of LSTMs in each direction ([@peters2018deep]).

    Each direction is as wide as the other models of a study, so the concatenated states are twice as wide. The number
    of LSTM cells is the feed-forward width of the other models (in ELMo 4096, projected to 512).
    """

    name: ClassVar[str] = "elmo"
    layouts: ClassVar[tuple[Layout, ...]] = ("bidirectional-pair",)
    learned_positions: ClassVar[bool] = False
    source_stack: ClassVar[dict[Layout, tuple[str, str]]] = {"bidirectional-pair": ("", "")}

    def build(
        self, layout: Layout, config: ModelConfig, vocabulary: Vocabulary, target: Vocabulary, layers: int
    ) -> PreTrainedModel:
        shape = shape_of(config, vocabulary, min(layers, _LAYERS))
        others = ("num_attention_heads", "intermediate_size", "hidden_act")  # and two kinds of dropout
        kept = {name: value for name, value in shape.items() if name not in others and "dropout" not in name}
        cells = max(config.feedforward, config.width + 1)  # torch requires fewer projections than cells
        return ElmoModel(ElmoConfig(**kept, cell_size=cells, dropout=config.dropout))


_ALL = (Bert(), PlainBert(), Albert(), Longformer(), Gpt2(), T5(), Elmo())
FAMILIES: dict[str, AbstractFamily] = {family.name: family for family in _ALL}
"""The architectures by name, as in plans and `[model] architectures`."""
