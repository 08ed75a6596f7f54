"""Prompts with a subject as input for each kind of model, the position of the answer, and its candidates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import UserError
from infoflow.models import Model, decoder_inputs, front_token, leading
from infoflow.objectives import AbstractObjective

from ._facts import OBJECT, SUBJECT

Standing = Literal["space", "start", "glued"]
"""What precedes an object: white space, nothing, or another character, as in `([Y])` and in scripts without spaces.

Many tokenizers use a different token for each case.
"""
_BEFORE: dict[Standing, tuple[str, str]] = {"space": ("a", " "), "start": ("", ""), "glued": ("(", "")}


def standing(template: str) -> Standing:
    """What comes before the object in a template: nothing ("start"), a space, or another character ("glued")."""
    before = template.split(OBJECT)[0]
    if not before.strip():
        return "start"
    return "space" if before[-1].isspace() else "glued"


def object_tokens(
    tokenizer: PreTrainedTokenizerBase, objects: Sequence[str], stands: Standing = "space"
) -> dict[str, int]:
    """The tokens of the objects that are exactly one known token in this position."""
    if not objects:
        return {}
    sign, space = _BEFORE[stands]
    before = tokenizer(sign, add_special_tokens=False)["input_ids"] if sign else []
    rows = tokenizer([f"{sign}{space}{word}" for word in objects], add_special_tokens=False)["input_ids"]
    special = {*tokenizer.all_special_ids}
    return {
        word: row[-1]
        for word, row in zip(objects, rows, strict=True)
        if row[:-1] == before and len(row) == len(before) + 1 and row[-1] not in special
    }


def common_objects(models: Sequence[Model], objects: Sequence[str]) -> tuple[str, ...]:
    """The objects that are a single token in every model: the candidates if models are compared."""
    if not models:
        raise UserError("A common vocabulary needs at least one model. Got none.")
    common = set(objects)
    for model in models:
        common &= object_tokens(written_by(model), sorted(common)).keys()
    return tuple(sorted(common))


def written_by(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer of the text that the model generates."""
    return model.output_tokenizer or model.require_tokenizer()


Way = Literal["mask", "next", "sentinel", "rewrite", "continue", "write"]
"""How a model fills a blank:

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
_FILLERS = ("a", "I", "x", "0", "the")


@dataclass(frozen=True, kw_only=True, slots=True)
class Blank:
    """One question as token ids."""

    source: tuple[int, ...]
    decoder: tuple[int, ...] | None  # decoder input of an encoder–decoder
    place: int  # position in the predicting stack's input whose prediction is the answer
    stands: Standing = "space"


def way_of(model: Model, trained: AbstractObjective | None = None) -> Way:
    """How this model fills in a blank."""
    if model.task == "masked-lm":
        if model.require_tokenizer().mask_token_id is None:
            raise UserError(f"The tokenizer of {model.name} has no mask token, so no sentence can have a blank.")
        return "mask"
    if model.task == "causal-lm":
        model.require_tokenizer()
        return "next"
    if model.task != "seq2seq":
        raise UserError(f"{model.name} has no output head, so it cannot fill a blank. Load it with its head.")
    return _of_encoder_decoder(model, trained)


def _of_encoder_decoder(model: Model, trained: AbstractObjective | None) -> Way:
    tokenizer, family = model.require_tokenizer(), model.module.config.model_type
    has_sentinel = _SENTINEL in tokenizer.get_vocab()
    if trained is not None:
        way = _OF_OBJECTIVE.get(trained.name)
        if way is None:
            raise UserError(f"{model.name} was trained for {trained.name}, so it cannot fill a blank in a sentence.")
    else:
        way = "sentinel" if family in _WITH_SENTINELS else "rewrite" if family in _WITH_MASK else None
        if way is None:
            raise UserError(
                f"{model.name} is an encoder–decoder of the family {family}, which translates or is not known to fill "
                "blanks. Use a denoiser: T5, BART, or a model whose objective is given (trained=)."
            )
    if (way == "sentinel" and not has_sentinel) or (way == "rewrite" and _symbol(model, trained) is None):
        raise UserError(f"The tokenizer of {model.name} has no mask or sentinel token, so no blank can be shown.")
    return way


def _symbol(model: Model, trained: AbstractObjective | None) -> str | None:
    """The symbol of the blank in a model's input."""
    tokenizer = model.require_tokenizer()
    if trained is not None and trained.name.startswith("denoise"):
        return _SENTINEL if _SENTINEL in tokenizer.get_vocab() else None
    return tokenizer.mask_token


class BlankWriter:
    """Turns prompts about subjects into a model's input."""

    def __init__(self, model: Model, trained: AbstractObjective | None = None) -> None:
        self.way = way_of(model, trained)
        self._model, self._source, self._target = model, model.require_tokenizer(), written_by(model)
        self._symbol = _SENTINEL if self.way == "sentinel" else _symbol(model, trained)

    def takes(self, template: str) -> bool:
        """Whether the object can be predicted. For a model that only continues text, only punctuation may follow it."""
        behind = template.split(OBJECT)[1]
        return self.way not in _TO_THE_END or not any(char.isalnum() for char in behind)

    def blank(self, template: str, subject: str | None) -> Blank | None:
        """The question; None if it is too long or empty, or if its subject contains the blank's symbol.

        Without a subject, a masked LM gets a mask in its place, and other models get nothing.
        """
        before = self._filled(template.split(OBJECT)[0], subject).rstrip()
        stands = standing(template)
        if self.way == "mask":
            return self._masked(template, subject)
        if self.way == "next":
            ids = [*leading(self._source), *self._source(before, add_special_tokens=False)["input_ids"]]
            if not ids and (front := front_token(self._source)) is not None:
                ids = [front]  # the answer begins the text
            return self._fitting(Blank(source=tuple(ids), decoder=None, place=len(ids) - 1, stands=stands))
        if self.way in ("continue", "write"):
            source = self._source(before if self.way == "continue" else "")["input_ids"]
        else:
            parts = self._filled(template, subject).split(OBJECT)
            source = with_symbols(self._source, parts, self._source.convert_tokens_to_ids(self._symbol or ""))
        decoder = {"sentinel": _SENTINEL, "continue": ""}.get(self.way, before)
        return self._with_decoder(source, decoder, stands)

    def _filled(self, template: str, subject: str | None) -> str:
        """The template with its subject; without a subject, the rest of the template, without doubled blanks."""
        return template.replace(SUBJECT, subject) if subject else " ".join(template.replace(SUBJECT, "").split())

    def _masked(self, template: str, subject: str | None) -> Blank | None:
        """The question with a mask as the object, and another as the subject if there is none."""
        text = template if subject is None else template.replace(SUBJECT, subject)
        mask = self._source.mask_token_id
        ids = with_symbols(self._source, text.replace(SUBJECT, OBJECT).split(OBJECT), mask)
        if ids is None:
            return None
        last = SUBJECT in text.split(OBJECT)[0]
        place = len(ids) - 1 - ids[::-1].index(mask) if last else ids.index(mask)
        return self._fitting(Blank(source=tuple(ids), decoder=None, place=place, stands=standing(template)))

    def _with_decoder(self, source: Sequence[int] | None, written: str, stands: Standing) -> Blank | None:
        if source is None:
            return None
        target = [*leading(self._target), *self._target(written, add_special_tokens=False)["input_ids"]]
        inputs, _ = decoder_inputs(self._model, torch.tensor([[*target, self._model.pad_token_id]]))
        read = tuple(inputs[0].tolist())
        return self._fitting(Blank(source=tuple(source), decoder=read, place=len(read) - 1, stands=stands))

    def _fitting(self, blank: Blank) -> Blank | None:
        longest, longest_target = self._model.max_tokens, self._model.max_target_tokens
        long = longest is not None and len(blank.source) > longest
        written = len(blank.decoder) if blank.decoder is not None else 0
        long |= longest_target is not None and written > longest_target
        return None if long or not blank.source else blank


def with_symbols(tokenizer: PreTrainedTokenizerBase, parts: Sequence[str], symbol: int) -> list[int] | None:
    """Token ids of the parts with a symbol between them; None if the text cannot be cut there.

    Each gap is filled with a word, the text is encoded, and the word's tokens are replaced by the symbol. So the space
    before the gap belongs to the answer if the tokenizer puts it into the answer's token, whatever it does around
    special tokens.
    """
    if not tokenizer.is_fast:
        ids = tokenizer(tokenizer.convert_ids_to_tokens(symbol).join(parts))["input_ids"]
        return ids if ids.count(symbol) == len(parts) - 1 else None
    for filler in _FILLERS:
        encoded = tokenizer(filler.join(parts), return_offsets_mapping=True, return_special_tokens_mask=True)
        ids, special = list(encoded["input_ids"]), encoded["special_tokens_mask"]
        if symbol in ids:
            return None
        tokens = [(at, *span) for at, span in enumerate(encoded["offset_mapping"]) if not special[at]]
        gaps = [_inside(tokens, *gap) for gap in _gaps(parts, len(filler))]
        if all(gaps):
            for gap in reversed(gaps):
                ids[gap[0] : gap[-1] + 1] = [symbol]
            return ids
    return None


def _gaps(parts: Sequence[str], length: int) -> list[tuple[int, int]]:
    """The characters of each filler, with the preceding white space."""
    found, end = [], 0
    for part in parts[:-1]:
        end += len(part)
        found.append((end - len(part) + len(part.rstrip()), end + length))
        end += length
    return found


def _inside(tokens: Sequence[tuple[int, int, int]], begin: int, end: int) -> list[int]:
    """The tokens that cover these characters; none if one of them also covers others."""
    # A prefix that a tokenizer adds to a text (`▁`) may have no characters.
    found = [(at, start, stop) for at, start, stop in tokens if start < end and (stop > begin or begin == 0)]
    return [at for at, _, _ in found] if all(begin <= start and stop <= end for _, start, stop in found) else []
