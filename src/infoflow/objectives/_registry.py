"""Objectives by name, as used on the command line and in plans."""

import dataclasses
from typing import Any, get_type_hints

from infoflow._subjects import provided
from infoflow.foundation import UserError, did_you_mean, read_setting

from ._causal_lm import BiLM, CausalLM, PrefixDecoder
from ._encoder_decoder import Bart, Mass, Translation
from ._masked_lm import MaskedLM, SpanBert
from ._multitask import MultiTask
from ._objective import OPTION as TOKEN_DROPOUT
from ._objective import AbstractObjective, with_token_dropout
from ._pair_objectives import NextSentence, SentenceOrder
from ._skip_gram import SkipGram
from ._text_to_text import (
    DenoiseFull,
    DenoiseMask,
    Deshuffling,
    DropTokens,
    PrefixLM,
    ReplaceSpans,
    Seq2SeqLM,
    SpanCorruption,
)
from ._two_models import Distillation, Electra

_ALL: tuple[type[AbstractObjective], ...] = (
    CausalLM,
    MaskedLM,
    Translation,
    NextSentence,
    SentenceOrder,
    SpanBert,
    Electra,
    PrefixLM,
    PrefixDecoder,
    Seq2SeqLM,
    DenoiseFull,
    DenoiseMask,
    Deshuffling,
    ReplaceSpans,
    DropTokens,
    SpanCorruption,
    Mass,
    Bart,
    Distillation,
    BiLM,
    SkipGram,
    MultiTask,
)

OBJECTIVES: dict[str, type[AbstractObjective]] = {cls.name: cls for cls in _ALL}
"""The objectives by name, as in plans."""


def further_objectives() -> dict[str, type[AbstractObjective]]:
    """Objectives of subjects: they need more than the text, so that a corpus alone cannot train them."""
    return {cls.name: cls for own in provided("objectives", "OBJECTIVES") for cls in own}


def make_objective(name: str, **options: Any) -> AbstractObjective:
    """The objective called `name`, with its options; `token_dropout` is an option of nearly every objective.

    Raises:
        UserError: No objective has that name, it has no such option, or the option's value is out of range.
    """
    known_names = OBJECTIVES | further_objectives()
    if name not in known_names:
        meant = did_you_mean(name, known_names)
        raise UserError(f"No objective is called {name}.{meant} Choose one of: {', '.join(OBJECTIVES)}.")
    cls = known_names[name]
    if TOKEN_DROPOUT in options and name in OBJECTIVES and takes_token_dropout(name):
        cls = cls if TOKEN_DROPOUT in _options(cls) else with_token_dropout(cls)
    known = _options(cls)
    if unknown := [option for option in options if option not in known]:
        raise UserError(f"{name} has no option {unknown[0]}. Its options: {', '.join(known) or 'none'}.")
    hints = get_type_hints(cls, include_extras=True)
    return cls(
        **{
            option: read_setting(hints[option], value, f"{name}.{option}", known[option])
            for option, value in options.items()
        }
    )


def takes_token_dropout(name: str) -> bool:
    """Whether an objective allows random tokens in its input.

    ELECTRA's task is to find them, and skip-gram draws them itself as negatives.
    """
    return OBJECTIVES[name].family not in ("discriminate", "static")


def _options(cls: type[AbstractObjective]) -> dict[str, Any]:
    """Options with their defaults."""
    return {field.name: field.default for field in dataclasses.fields(cls)}  # type: ignore[arg-type] (all are dataclasses)
