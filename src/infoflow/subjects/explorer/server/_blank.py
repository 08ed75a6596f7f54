"""Candidate words for a blank, or for the end of a text, by layer."""

from dataclasses import replace
from typing import Any

from infoflow.foundation import UserError
from infoflow.heads import ReadSentence, read_tokens

from ._lens import lens_rows
from ._sentence_reading import ExploredModel, SentenceReading

BLANK = "___"


def with_mask(subject: ExploredModel, text: str) -> str:
    """The text with the model's mask in place of each blank.

    Raises:
        UserError: A masked language model has no blank in the text, or no mask.
    """
    model = subject.model
    if model.task != "masked-lm":
        if BLANK in text:
            raise UserError(
                f"{model.name} continues a text and does not see what follows a blank. End the text at "
                f"{BLANK}, and leave {BLANK} out."
            )
        return text
    mask = model.require_tokenizer().mask_token
    if mask is None:
        raise UserError(f"The tokenizer of {model.name} has no mask token, so blanks cannot be filled in.")
    if BLANK not in text and mask not in text:
        raise UserError(f"Write {BLANK} where a word should be filled in.")
    return text.replace(BLANK, mask)


def read_blank(subject: ExploredModel, text: str, translation: str | None, longest: int) -> ReadSentence:
    """The tokens of a text with a blank; a translation to be continued is read in full.

    Raises:
        UserError: See `with_mask` and `read_tokens`.
    """
    model = subject.model
    if model.task == "encoder":
        raise UserError(f"{model.name} has no language-model head, so it cannot fill in words.")
    if model.task != "seq2seq":
        return read_tokens(model, with_mask(subject, text), None, longest)
    sentence = read_tokens(model, text, translation or ".", longest)
    if translation:
        return sentence
    stack = model.anatomy.predicts.name  # nothing is written yet: only the start
    return replace(sentence, tokens=sentence.tokens | {stack: sentence.tokens[stack][:1]}, translation="")


def blank_positions(reading: SentenceReading) -> list[int]:
    """Positions to predict: the masks of a masked language model, else the last token that is not special."""
    model, tokens = reading.subject.model, reading.sentence.tokens[reading.subject.model.anatomy.predicts.name]
    if model.task == "masked-lm":
        mask = model.require_tokenizer().mask_token_id
        return [place for place, token in enumerate(tokens) if token.id == mask]
    written = [place for place, token in enumerate(tokens) if not token.special]
    return [written[-1] if written else 0]


def filled(reading: SentenceReading) -> dict[str, Any]:
    """Candidates for each blank by layer, as in `lens_rows`."""
    return lens_rows(reading, blank_positions(reading))
