"""Shared parts of encoder-decoder objectives: the encoder reads a source, the decoder predicts a target."""

from typing import Any

import numpy as np
from transformers import EncoderDecoderModel, PreTrainedModel, T5ForConditionalGeneration

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError

from ._batch import Batch, Corrupted
from ._loss import LossTerm, supervised_cross_entropy


def inner(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The tokens between [CLS] and [SEP], to which noise applies."""
    first = int(len(tokens) > 0 and tokens[0] == vocabulary.start)
    last = len(tokens) - int(len(tokens) > first and tokens[-1] == vocabulary.end)
    return tokens[first:last]


def framed(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """[CLS] tokens [SEP], int64."""
    return np.concatenate([[vocabulary.start], tokens, [vocabulary.end]]).astype(np.int64)


def source_and_target(
    source: np.ndarray, target: np.ndarray, vocabulary: Vocabulary, selected: np.ndarray | None = None
) -> Corrupted:
    """The encoder reads [CLS] source [SEP]; the decoder reads [CLS] target and predicts target [SEP].

    `selected` marks the tokens of `source` that come from noise.
    """
    inputs, outputs = framed(source, vocabulary), framed(target, vocabulary)
    chosen = np.zeros(len(inputs), dtype=bool)
    if selected is not None:
        chosen[1:-1] = selected
    arrays = {"input_ids": inputs, "labels": outputs[1:], "decoder_input_ids": outputs[:-1]}
    return Corrupted(arrays=arrays, selected=chosen)


def target_loss(
    name: str, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0, **reads: Any
) -> dict[str, LossTerm]:
    """Cross-entropy of the target's tokens; `reads` are further decoder inputs.

    Raises:
        UserError: The module has no encoder and decoder.
    """
    encoder, decoder, owner, scale = _parts(module, name)
    source = encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    # The decoder's padding is on the right, where no causal position sees it: no mask is needed.
    inputs = {
        "input_ids": batch.decoder_input_ids,
        "encoder_hidden_states": source,
        "encoder_attention_mask": batch.attention_mask,
        "use_cache": False,
        **reads,
    }
    if isinstance(module, T5ForConditionalGeneration):
        inputs.pop("position_ids", None)  # positions are relative: shifting all of them changes nothing
    hidden = decoder(**inputs).last_hidden_state * scale
    return {name: supervised_cross_entropy(owner, hidden, batch.labels, label_smoothing)}


def _parts(module: PreTrainedModel, name: str) -> tuple[Any, Any, Any, float]:
    """Encoder, decoder, the module with the output head, and T5's scale of the last states."""
    whole: Any = module
    if isinstance(module, EncoderDecoderModel):
        return whole.encoder, whole.decoder.base_model, whole.decoder, 1.0
    if isinstance(module, T5ForConditionalGeneration):
        scaled = getattr(module.config, "scale_decoder_outputs", module.config.tie_word_embeddings)
        return whole.encoder, whole.decoder, whole, module.config.d_model**-0.5 if scaled else 1.0
    raise UserError(
        f"{name} trains an EncoderDecoderModel. Got {type(module).__name__}.\n"
        "Build one with build_models, or from two pretrained stacks with transformers."
    )
