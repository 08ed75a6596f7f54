"""The loss of targets in text generation: with an encoder for the source, or one stack for both."""

# B example, T token, V vocabulary

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.foundation import UserError
from infoflow.models import accepts, without_cache
from infoflow.objectives import UNSUPERVISED, prefix_mask

from ._causal import reads_left_only


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GenerationSources:
    """Sources with their targets."""

    sources: Int[Tensor, "example source_token"]
    real: Tensor
    """Bool (example, source token): not padding, which is on the right."""
    targets: Int[Tensor, "example target_token"]
    """Target ids from the tokenizer, UNSUPERVISED at padding."""
    begins: Int[Tensor, " example"]
    """Number of tokens of each target before its text."""


def has_encoder(module: PreTrainedModel) -> bool:
    """Whether the model reads the source with a separate encoder.

    Raises:
        UserError: The model writes no text.
    """
    if module.config.is_encoder_decoder and module.can_generate():
        return True
    kind = type(module).__name__
    if not module.can_generate():
        raise UserError(
            f"Generation needs a decoder, alone or with an encoder. Got a {kind}, which cannot generate text.\n"
            "Load it with transformers.AutoModelForSeq2SeqLM or AutoModelForCausalLM, or choose another task."
        )
    if not reads_left_only(module):
        raise UserError(
            f"A generating stack must not attend to later tokens. {kind} does: it would read its own targets.\n"
            "Load it as a decoder (is_decoder in its configuration), or use a model trained as one."
        )
    return False


def positions(module: PreTrainedModel) -> int | None:
    """Maximum row length of the writing stack; None if unlimited (T5)."""
    config: Any = module.config
    stack = getattr(config, "decoder", None) or config.get_text_config()
    found = (getattr(stack, name, None) for name in ("max_decoder_position_embeddings", "max_position_embeddings"))
    return next((one for one in found if one is not None), None)


def check_positions(module: PreTrainedModel, tokens: int) -> None:
    """Raise a UserError if source and target together exceed the positions of the stack that reads both."""
    limit = positions(module)
    if limit is not None and tokens > limit:
        raise UserError(
            f"{type(module).__name__} has {limit} positions for source and target together. Got "
            f"{tokens} tokens.\nLower max_length or max_target."
        )


def written_losses(
    module: PreTrainedModel, asked: GenerationSources, two_sided: bool = False, label_smoothing: float = 0.0
) -> Float[Tensor, " example"]:
    r"""Sum over the target's tokens, its end included, of $-\log p(y_t \mid y_{<t}, x)$, nats.

    With one stack, `two_sided` gives the source bidirectional attention, as in a prefix language model.

    Raises:
        UserError: The model writes no text, or source and target together exceed its positions.
    """
    if has_encoder(module):
        logits, labels = _beside(module, asked)
    else:
        logits, labels = _after(module, asked, two_sided)
    losses = F.cross_entropy(
        logits.float().transpose(1, 2),
        labels,
        ignore_index=UNSUPERVISED,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return losses.sum(dim=1)


def _beside(module: Any, asked: GenerationSources) -> tuple[Float[Tensor, "B T V"], Int[Tensor, "B T"]]:
    """The decoder reads the target shifted as in its family.

    If a target begins with the decoder's start token ([CLS] of a matched model), it is read but not predicted.
    """
    reads, labels = module.prepare_decoder_input_ids_from_labels(labels=asked.targets), asked.targets
    if bool((asked.begins > 0).all() and (reads[:, 0] == labels[:, 0]).all()):
        reads, labels = labels[:, :-1].masked_fill(labels[:, :-1] == UNSUPERVISED, int(labels[0, 0])), labels[:, 1:]
    mask = None if bool(asked.real.all()) else asked.real.long()
    output = module(
        input_ids=asked.sources, attention_mask=mask, decoder_input_ids=reads.contiguous(), **without_cache(module)
    )
    return output.logits, labels


def _after(module: Any, asked: GenerationSources, two_sided: bool) -> tuple[Float[Tensor, "B T V"], Int[Tensor, "B T"]]:
    """One stack reads source and target; logits start at the last token of the shortest source."""
    ids, labels, prefix = joined(asked)
    check_positions(module, ids.shape[1])
    first = int(prefix.min()) - 1
    inputs: dict[str, Any] = {"input_ids": ids, **without_cache(module)}
    if two_sided:
        inputs["attention_mask"] = prefix_mask(prefix, ids.shape[1])
    if accepts(module, "logits_to_keep"):
        inputs["logits_to_keep"] = torch.arange(first, ids.shape[1], device=ids.device)
        return module(**inputs).logits, labels[:, first:]
    return module(**inputs).logits[:, first:], labels[:, first:]


def joined(asked: GenerationSources) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """Source and target in one row, padded on the right; the token to predict at each position; source lengths."""
    rows, labels = [], []
    prefix = asked.real.sum(dim=1)
    for row, length in enumerate(prefix.tolist()):
        target = asked.targets[row][asked.targets[row] != UNSUPERVISED][int(asked.begins[row]) :]
        rows.append(torch.cat([asked.sources[row, :length], target[:-1]]))
        labels.append(torch.cat([target.new_full((length - 1,), UNSUPERVISED), target]))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, batch_first=True), pad(labels, batch_first=True, padding_value=UNSUPERVISED), prefix
