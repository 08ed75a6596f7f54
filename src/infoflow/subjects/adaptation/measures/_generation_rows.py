"""Sources and targets of a generation task as token ids, and the loss of the targets."""

# B example, T token, V vocabulary

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import Corpus
from infoflow.foundation import UserError, current_display
from infoflow.models import accepts, without_cache
from infoflow.objectives import UNSUPERVISED, Example, prefix_mask

from ._task_rows import reads_left_only, rows_digest

BEGINS = "target_begins"
"""Key of `Example.labels`: number of tokens (0 or 1) that the tokenizer puts before the target's text."""
_AT_ONCE = 1024  # texts per call of the tokenizer


class TextFormat(NamedTuple):
    """The tokens that a tokenizer puts around a text."""

    tokenizer: PreTrainedTokenizerBase
    start: int | None  # the token before a text; None if there is none
    end: int  # the token after a text; this task adds it if the tokenizer does not
    adds_end: bool
    pad: int


@final
class GenerationRows:
    """The source and target of each row of a corpus: example i has the texts (source,) and the translation target.

    Both end with the end-of-text token, which also separates source and target if one stack reads both. Sources are
    truncated to `max_length` tokens, targets to `max_target` after their start; the end-of-text token is kept.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None,
        prefix: str,
        max_length: int,
        max_target: int,
    ) -> None:
        """"""
        corpus.require("translation")
        source_side = text_format(tokenizer, target=False)
        self.side = text_format(target_tokenizer or tokenizer, target=target_tokenizer is None)
        """Format of the target side."""
        max_target += self.side.start is not None
        _check_room(source_side, max_length)
        _check_room(self.side, max_target)
        sources = (prefix + text for text in corpus.column("text"))
        self._sources = _encoded(source_side, sources, max_length, target=False)
        self._targets = _encoded(self.side, corpus.column("translation"), max_target, target=target_tokenizer is None)
        self.pad = source_side.pad
        """The padding id of sources."""
        self.sentence_ids: np.ndarray = corpus.ids
        self.source_lengths: np.ndarray = np.array([len(ids) for ids in self._sources], dtype=np.int64)
        """Number of tokens of each source, as the encoder reads it."""
        self.lengths: np.ndarray = self.source_lengths + np.array([len(ids) for ids in self._targets])
        both = (part for ids in (*self._sources, *self._targets) for part in (ids.tobytes(), b"|"))
        self.digest = rows_digest("texts to write", both)
        for what, rows, most in (("texts", self._sources, max_length), ("texts to write", self._targets, max_target)):
            if cut := sum(len(ids) == most for ids in rows):
                current_display().note(
                    f"{corpus.name}: {cut:,} of {len(rows):,} {what} have {most} tokens or were truncated to that."
                )

    def row(self, index: int) -> np.ndarray:
        """Token ids of source and target, special tokens included."""
        return np.concatenate([self._sources[index], self._targets[index]])

    def source(self, index: int) -> np.ndarray:
        """Token ids of the source."""
        return self._sources[index]

    def example(self, index: int) -> Example:
        """The source as the text, the target as its translation."""
        begins = int(self.side.start is not None and self._targets[index][0] == self.side.start)
        return Example(
            texts=(self._sources[index],), translation=self._targets[index], labels={BEGINS: np.array(begins)}
        )


def text_format(tokenizer: Any, target: bool) -> TextFormat:
    """The tokens that a tokenizer puts around texts, found by encoding one."""
    keyword = "text_target" if target else "text"
    ids = tokenizer(**{keyword: "a"})["input_ids"]
    ends = [id for id in (tokenizer.eos_token_id, tokenizer.sep_token_id) if id is not None]
    adds_end = bool(ids) and ids[-1] in ends
    if not ends:
        raise UserError(
            "Generation needs a token that ends a text. The tokenizer has neither an end-of-text nor a "
            "separator token.\n"
            "Set one: tokenizer.eos_token = ..., or load the tokenizer that belongs to the model."
        )
    starts = {id for id in (tokenizer.cls_token_id, tokenizer.bos_token_id) if id is not None}
    begins = len(ids) > 1 and ids[0] in starts
    end = ids[-1] if adds_end else ends[0]
    pad = tokenizer.pad_token_id
    return TextFormat(tokenizer, ids[0] if begins else None, end, adds_end, end if pad is None else pad)


def _check_room(side: TextFormat, room: int) -> None:
    least = 2 + (side.start is not None)
    if room < least:
        raise UserError(
            f"A text needs at least one token in addition to the special ones, {least} in total. Got {room}.\n"
            "Raise max_length or max_target."
        )


def _encoded(side: TextFormat, texts: Iterable[str], most: int, target: bool) -> list[np.ndarray]:
    tokenizer: Any = side.tokenizer
    keyword = "text_target" if target else "text"
    found: list[np.ndarray] = []
    for part in _parts(iter(texts)):
        encoded = tokenizer(
            **{keyword: part},
            truncation=True,
            max_length=most if side.adds_end else most - 1,
            return_attention_mask=False,
            return_token_type_ids=False,
            # A text may contain "[SEP]", which must not become the control token.
            split_special_tokens=True,
        )
        ends = [] if side.adds_end else [side.end]
        found += [np.array([*ids, *ends], dtype=np.int64) for ids in encoded["input_ids"]]
    return found


def _parts(texts: Iterator[str]) -> Iterator[list[str]]:
    while part := list(islice(texts, _AT_ONCE)):
        yield part


# The loss of targets in text generation: with an encoder for the source, or one stack for both.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GenerationSources:
    """Sources with their targets."""

    sources: Int[Tensor, "example source_token"]
    real: Tensor  # bool (example, source token): not padding, which is on the right
    targets: Int[Tensor, "example target_token"]  # target ids from the tokenizer, UNSUPERVISED at padding
    begins: Int[Tensor, " example"]  # number of tokens of each target before its text


def has_encoder(module: PreTrainedModel) -> bool:
    """Whether the model reads the source with a separate encoder."""
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
    """Maximum number of tokens in a row of the writing stack; None if unlimited (T5)."""
    config: Any = module.config
    stack = getattr(config, "decoder", None) or config.get_text_config()
    found = (getattr(stack, name, None) for name in ("max_decoder_position_embeddings", "max_position_embeddings"))
    return next((one for one in found if one is not None), None)


def check_positions(module: PreTrainedModel, tokens: int) -> None:
    """Raise a UserError if source and target together exceed the positions of the stack that reads both."""
    limit = positions(module)
    if limit is not None and tokens > limit:
        raise UserError(
            f"{type(module).__name__} has {limit} positions for source and target together. Got {tokens} tokens.\n"
            "Lower max_length or max_target."
        )


def written_losses(
    module: PreTrainedModel, sources: GenerationSources, two_sided: bool = False, label_smoothing: float = 0.0
) -> Float[Tensor, " example"]:
    r"""Sum over the target's tokens, its end included, of $-\log p(y_t \mid y_{<t}, x)$, in nats.

    With one stack, `two_sided` gives the source bidirectional attention, as in a prefix language model.
    """
    if has_encoder(module):
        logits, labels = _by_decoder(module, sources)
    else:
        logits, labels = _after(module, sources, two_sided)
    losses = F.cross_entropy(
        logits.float().transpose(1, 2),
        labels,
        ignore_index=UNSUPERVISED,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    return losses.sum(dim=1)


def _by_decoder(module: Any, sources: GenerationSources) -> tuple[Float[Tensor, "B T V"], Int[Tensor, "B T"]]:
    """Logits and labels of a decoder with an encoder; the decoder reads the target, shifted as in its family.

    If targets begin with the decoder's start token ([CLS] of a matched model), this token is read but not predicted.
    """
    reads, labels = module.prepare_decoder_input_ids_from_labels(labels=sources.targets), sources.targets
    if bool((sources.begins > 0).all() and (reads[:, 0] == labels[:, 0]).all()):
        reads, labels = labels[:, :-1].masked_fill(labels[:, :-1] == UNSUPERVISED, int(labels[0, 0])), labels[:, 1:]
    mask = None if bool(sources.real.all()) else sources.real.long()
    output = module(
        input_ids=sources.sources, attention_mask=mask, decoder_input_ids=reads.contiguous(), **without_cache(module)
    )
    return output.logits, labels


def _after(
    module: Any, sources: GenerationSources, two_sided: bool
) -> tuple[Float[Tensor, "B T V"], Int[Tensor, "B T"]]:
    """Logits and labels of one stack that reads source and target, from the last token of the shortest source on."""
    ids, labels, prefix = joined(sources)
    check_positions(module, ids.shape[1])
    first = int(prefix.min()) - 1
    inputs: dict[str, Any] = {"input_ids": ids, **without_cache(module)}
    if two_sided:
        inputs["attention_mask"] = prefix_mask(prefix, ids.shape[1])
    if accepts(module, "logits_to_keep"):
        inputs["logits_to_keep"] = torch.arange(first, ids.shape[1], device=ids.device)
        return module(**inputs).logits, labels[:, first:]
    return module(**inputs).logits[:, first:], labels[:, first:]


def joined(sources: GenerationSources) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"], Int[Tensor, " B"]]:
    """Source and target in one row, padded on the right; the token to predict at each position; source lengths."""
    rows, labels = [], []
    prefix = sources.real.sum(dim=1)
    for row, length in enumerate(prefix.tolist()):
        target = sources.targets[row][sources.targets[row] != UNSUPERVISED][int(sources.begins[row]) :]
        rows.append(torch.cat([sources.sources[row, :length], target[:-1]]))
        labels.append(torch.cat([target.new_full((length - 1,), UNSUPERVISED), target]))
    pad = torch.nn.utils.rnn.pad_sequence
    return pad(rows, batch_first=True), pad(labels, batch_first=True, padding_value=UNSUPERVISED), prefix
