"""One sentence as the tokens that a model's stacks read, with what to call them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError, as_written
from infoflow.models import Model, decoder_inputs, translate

Text = str | Sequence[int]
"""A sentence, or token ids where the model has no tokenizer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadToken:
    """A token of a sentence as a reader should see it."""

    id: int
    text: str
    special: bool  # added by the tokenizer, or the decoder's start


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSentence:
    """A sentence, and its translation where a decoder reads one, as tokens by stack."""

    text: str
    translation: str | None
    own_translation: bool  # the model's own: none was given
    tokens: dict[str, tuple[ReadToken, ...]]
    of_ids: bool = False  # token ids were given, not text


def read_tokens(
    model: Model, sentence: Text, translation: Text | None = None, longest: int | None = None
) -> ReadSentence:
    """The tokens that each stack of `model` reads. Without a translation an encoder–decoder model makes its own.

    Args:
        model: A loaded model.
        sentence: Text, or token ids (in text, numbers divided by spaces, where the model has no tokenizer).
        translation: The same for the decoder; what it reads is shifted right by one.
        longest: Refuse more tokens than this on either side.

    Raises:
        UserError: The sentence is empty or too long, there is no tokenizer for a text, or a translation is given to a
            model that reads one text only.
    """
    source, *further = (stack.name for stack in model.anatomy.stacks)
    if translation is not None and not further:
        raise UserError(f"{model.name} reads one text and takes no translation. Leave the second sentence out.")
    tokens = {source: _tokens(model, sentence, "sentence", target=False)}
    own = bool(further) and translation is None
    if own:
        translation = _own_translation(model, sentence)
    if translation is not None:
        tokens[further[0]] = _decoder_tokens(model, _tokens(model, translation, "translation", target=True))
    for stack, limit in zip(tokens, (model.max_tokens, model.max_target_tokens), strict=False):
        _check_length(model, tokens[stack], limit, longest, "sentence" if stack == source else "translation")
    shown = None if translation is None else _shown(translation)
    return ReadSentence(
        text=_shown(sentence), translation=shown, own_translation=own, tokens=tokens, of_ids=_is_ids(model, sentence)
    )


def _is_ids(model: Model, text: Text) -> bool:
    return model.tokenizer is None or not isinstance(text, str)


def _shown(text: Text) -> str:
    return text.strip() if isinstance(text, str) else " ".join(map(str, text))


def _tokens(model: Model, text: Text, what: str, target: bool) -> tuple[ReadToken, ...]:
    ids = _token_ids(model, text, what)
    if ids is not None:
        return tuple(ReadToken(id=token, text=str(token), special=False) for token in ids)
    assert isinstance(text, str)
    own = model.target_tokenizer if target else None
    tokens = _encoded(own or model.require_tokenizer(), text, target)
    if all(token.special for token in tokens):
        raise UserError(f"The {what} is empty: {as_written(text)} has no token. Write one between quotes.")
    return tokens


def _token_ids(model: Model, text: Text, what: str) -> list[int] | None:
    """Token ids that were given in place of a text; None for a text."""
    if isinstance(text, str):
        words = text.split()
        if model.tokenizer is not None:
            return None
        if not words or not all(word.isdecimal() for word in words):
            raise UserError(
                f"{model.name} has no tokenizer, so it takes token ids but no text. Give a tokenizer (--tokenizer), or "
                f'the {what} as token ids divided by spaces, such as "5 6 7". Got {text}.'
            )
        ids = [int(word) for word in words]
    else:
        ids = [int(token) for token in text]
    size = model.module.get_input_embeddings().weight.shape[0]
    if not ids or not all(0 <= token < size for token in ids):
        raise UserError(f"Token ids of {model.name} lie in 0..{size - 1}. Got {ids[:20] or 'none'} for the {what}.")
    return ids


def _encoded(tokenizer: PreTrainedTokenizerBase, text: str, target: bool) -> tuple[ReadToken, ...]:
    argument = {"text_target" if target else "text": text}
    encoding = tokenizer(**argument, return_special_tokens_mask=True, return_offsets_mapping=tokenizer.is_fast)
    ids = list(encoding["input_ids"])
    names = tokenizer.convert_ids_to_tokens(ids)
    spans = encoding["offset_mapping"] if tokenizer.is_fast else [(0, 0)] * len(ids)
    special = encoding["special_tokens_mask"]
    # The text itself where the tokenizer knows the place: byte-level names such as `ĠcafÃ©` are unreadable.
    texts = [text[start:end].strip() or name for (start, end), name in zip(spans, names, strict=True)]
    return tuple(
        ReadToken(id=token, text=shown, special=bool(flag))
        for token, shown, flag in zip(ids, texts, special, strict=True)
    )


def _own_translation(model: Model, sentence: Text) -> Text:
    if isinstance(sentence, str) and model.tokenizer is not None and model.task == "seq2seq":
        translation = translate(model, [sentence])[0]
        return translation if translation.strip() else "."  # a model that has learned nothing may say nothing
    raise UserError(
        f"{model.name} reads a sentence and its translation. Give the translation too: without a tokenizer the model's "
        "own cannot be made."
    )


def _decoder_tokens(model: Model, tokens: tuple[ReadToken, ...]) -> tuple[ReadToken, ...]:
    """What the decoder reads: its start token, then the translation without its last token."""
    inputs, labels = (row[0] for row in decoder_inputs(model, torch.tensor([[token.id for token in tokens]])))
    if len(labels) < len(tokens):  # the translation brings its own start token
        return tokens[:-1]
    tokenizer = model.target_tokenizer or model.tokenizer
    start = int(inputs[0])
    name = str(start) if tokenizer is None else tokenizer.convert_ids_to_tokens(start)
    return (ReadToken(id=start, text=str(name), special=True), *tokens[: len(inputs) - 1])


def _check_length(
    model: Model, tokens: tuple[ReadToken, ...], limit: int | None, longest: int | None, what: str
) -> None:
    if limit is not None and len(tokens) > limit:
        raise UserError(
            f"The {what} has {len(tokens)} tokens, special ones included; {model.name} takes at most {limit}. Give a "
            "shorter one."
        )
    if longest is not None and len(tokens) > longest:
        raise UserError(f"The {what} has {len(tokens)} tokens; at most {longest} are drawn. Give a shorter one.")
