"""A prompt and a subject as what each kind of model reads, and the place where it answers."""

from dataclasses import dataclass
from typing import Literal

import torch

from infoflow.foundation import UserError
from infoflow.models import Model, decoder_inputs
from infoflow.objectives import AbstractObjective

from ._facts import OBJECT, SUBJECT
from ._object_tokens import written_by

Way = Literal["mask", "next", "sentinel", "rewrite", "continue", "write"]
"""How a model is asked:

| way        | model                        | (encoder) reads                        | decoder reads | answer at  |
|------------|------------------------------|----------------------------------------|---------------|------------|
| `mask`     | masked LM                    | the sentence, one mask as the object   |               | the mask   |
| `next`     | causal LM                    | the sentence up to the object          |               | next token |
| `sentinel` | T5, span corruption          | the sentence with `<extra_id_0>`       | that sentinel | next token |
| `rewrite`  | BART, denoisers of all text  | the sentence with a mask or a sentinel | up to object  | next token |
| `continue` | prefix LM with an encoder    | the sentence up to the object          | its start     | next token |
| `write`    | seq2seq LM                   | nothing                                | up to object  | next token |
"""

_SENTINEL = "<extra_id_0>"
_OF_OBJECTIVE: dict[str, Way] = {
    "span-corruption": "sentinel", "replace-spans": "sentinel", "bart": "rewrite", "denoise-full": "rewrite",
    "denoise-mask": "rewrite", "prefix-lm": "continue", "seq2seq-lm": "write",
}  # fmt: skip
_WITH_SENTINELS = ("t5", "mt5", "umt5", "longt5", "switch_transformers")
_WITH_MASK = ("bart", "led")
_TO_THE_END: tuple[Way, ...] = ("next", "continue", "write")


@dataclass(frozen=True, kw_only=True, slots=True)
class Blank:
    """One question as token ids."""

    source: tuple[int, ...]
    decoder: tuple[int, ...] | None
    """What the decoder of an encoder–decoder reads."""
    place: int
    """Position, of what the predicting stack reads, whose prediction is the answer."""


def way_of(model: Model, trained: AbstractObjective | None = None) -> Way:
    """How this model is asked.

    Args:
        trained: What it was trained for; where nothing says so, an encoder–decoder is known by its family alone.

    Raises:
        UserError: Nothing in its training fills a blank, or its tokenizer has no symbol for one.
    """
    if model.task == "masked-lm":
        if model.require_tokenizer().mask_token_id is None:
            raise UserError(f"The tokenizer of {model.name} has no mask token, so no sentence can have a blank.")
        return "mask"
    if model.task == "causal-lm":
        model.require_tokenizer()
        return "next"
    if model.task != "seq2seq":
        raise UserError(f"{model.name} has no output head, so it fills no blank. Load it with its head.")
    return _of_encoder_decoder(model, trained)


def _of_encoder_decoder(model: Model, trained: AbstractObjective | None) -> Way:
    tokenizer, family = model.require_tokenizer(), model.module.config.model_type
    has_sentinel = _SENTINEL in tokenizer.get_vocab()
    if trained is not None:
        way = _OF_OBJECTIVE.get(trained.name)
        if way is None:
            raise UserError(f"{model.name} was trained for {trained.name}, and that fills no blank in a sentence.")
    else:
        way = "sentinel" if family in _WITH_SENTINELS else "rewrite" if family in _WITH_MASK else None
        if way is None:
            raise UserError(
                f"{model.name} is an encoder–decoder of the family {family}, which translates or is not known to fill "
                "blanks. A denoiser can be asked: T5, BART, or a model whose objective is given (trained=)."
            )
    if (way == "sentinel" and not has_sentinel) or (way == "rewrite" and _symbol(model, trained) is None):
        raise UserError(f"The tokenizer of {model.name} has no symbol for what is left out, so there is no blank.")
    return way


def _symbol(model: Model, trained: AbstractObjective | None) -> str | None:
    """What stands for the blank in what a model reads."""
    tokenizer = model.require_tokenizer()
    if trained is not None and trained.name.startswith("denoise"):
        return _SENTINEL if _SENTINEL in tokenizer.get_vocab() else None
    return tokenizer.mask_token


class BlankWriter:
    """Writes prompts about subjects as a model reads them."""

    def __init__(self, model: Model, trained: AbstractObjective | None = None) -> None:
        self.way = way_of(model, trained)
        self._model, self._source, self._target = model, model.require_tokenizer(), written_by(model)
        self._symbol = _SENTINEL if self.way == "sentinel" else _symbol(model, trained)

    def takes(self, template: str) -> bool:
        """Whether the object can be asked for: of a model that only goes on, nothing but punctuation may follow it."""
        behind = template.split(OBJECT)[1]
        return self.way not in _TO_THE_END or not any(char.isalnum() for char in behind)

    def blank(self, template: str, subject: str | None) -> Blank | None:
        """The question; None where it cannot be read: too long, empty, or a subject that has the blank's symbol.

        Without a subject a mask stands in its place (a masked LM), or nothing.
        """
        before = self._filled(template.split(OBJECT)[0], subject).rstrip()
        if self.way == "mask":
            return self._masked(template, subject)
        if self.way == "next":
            ids = [*_leading(self._source), *self._source(before, add_special_tokens=False)["input_ids"]]
            return self._fitting(Blank(source=tuple(ids), decoder=None, place=len(ids) - 1))
        source = {"continue": before, "write": ""}.get(self.way)
        if source is None:
            source = self._filled(template.replace(OBJECT, self._symbol or ""), subject)
        decoder = {"sentinel": _SENTINEL, "continue": ""}.get(self.way, before)
        return self._with_decoder(source, decoder)

    def _filled(self, template: str, subject: str | None) -> str:
        """The template about a subject; without one, of whatever is left, no blank stands beside a blank."""
        return template.replace(SUBJECT, subject) if subject else " ".join(template.replace(SUBJECT, "").split())

    def _masked(self, template: str, subject: str | None) -> Blank | None:
        mask, mask_id = self._source.mask_token, self._source.mask_token_id
        text = template.replace(OBJECT, mask).replace(SUBJECT, subject or mask)
        ids = self._source(text)["input_ids"]
        places = [place for place, token in enumerate(ids) if token == mask_id]
        if len(places) != (1 if subject else 2):
            return None
        last = subject is None and template.index(SUBJECT) < template.index(OBJECT)
        return self._fitting(Blank(source=tuple(ids), decoder=None, place=places[-1 if last else 0]))

    def _with_decoder(self, source: str, written: str) -> Blank | None:
        target = [*_leading(self._target), *self._target(written, add_special_tokens=False)["input_ids"]]
        inputs, _ = decoder_inputs(self._model, torch.tensor([[*target, self._model.pad_token_id]]))
        read = tuple(inputs[0].tolist())
        return self._fitting(Blank(source=tuple(self._source(source)["input_ids"]), decoder=read, place=len(read) - 1))

    def _fitting(self, blank: Blank) -> Blank | None:
        longest, longest_target = self._model.max_tokens, self._model.max_target_tokens
        long = longest is not None and len(blank.source) > longest
        written = len(blank.decoder) if blank.decoder is not None else 0
        long |= longest_target is not None and written > longest_target
        return None if long or not blank.source else blank


def _leading(tokenizer) -> list[int]:
    """The special tokens that a tokenizer puts before a text."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    starts = [place for place in range(len(whole)) if whole[place : place + len(bare)] == bare]
    return whole[: starts[0]] if starts else []
