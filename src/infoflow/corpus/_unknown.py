"""Whether a tokenizer knows the text of a corpus."""

import numpy as np
from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError, current_display

_LOOKED_AT = 1_000_000  # tokens
_FEW = 0.05  # minimum share of words unknown to a tokenizer for a note
_noted: set[str] = set()


def check_known(
    ids: np.ndarray,
    special: np.ndarray,
    words: np.ndarray | None,
    spans: np.ndarray | None,
    tokenizer: PreTrainedTokenizerBase,
    key: str,
) -> None:
    """Refuse a tokenizer that gives no tokens or one for all words; note once if it knows only part of the text.

    Args:
        ids: All tokens of the corpus, in order; the first million are checked.
        special: Whether the tokenizer added each.
        words: The word of each token, counted from 0 in every sentence.
        spans: Start and end character of each token, which show whether words differ.
        key: Identifies corpus and tokenizer, so that a note is shown once.

    Raises:
        UserError: None of the text would reach a model.
    """
    part = slice(0, _LOOKED_AT)
    real = ~np.asarray(special[part])
    tokens = np.asarray(ids[part])[real]
    if not len(tokens):
        raise UserError(f"{_name(tokenizer)} produces no tokens for the corpus. {_ADVICE}")
    unknown = tokens == (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)
    if words is not None:
        unknown = _by_word(unknown, np.asarray(words[part])[real])
    share = float(unknown.mean())
    if share == 1 or _all_alike(tokens, None if spans is None else np.asarray(spans[part])[real]):
        raise UserError(f"{_name(tokenizer)} produces the same token for every word of the corpus. {_ADVICE}")
    if share > _FEW and key not in _noted:
        _noted.add(key)
        current_display().note(
            f"{_name(tokenizer)} does not know {share:.0%} of the words of the corpus, and produces "
            f"{tokenizer.unk_token} for them or parts of them."
        )


_ADVICE = "Use the tokenizer that the model was trained with, or a corpus in the model's language."


def _name(tokenizer: PreTrainedTokenizerBase) -> str:
    return f"The tokenizer ({type(tokenizer).__name__}, {len(tokenizer)} tokens)"


def _by_word(unknown: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Whether each word has an unknown part. A word ends when its number changes."""
    starts = np.flatnonzero(np.diff(words, prepend=words[0] - 1))
    return np.logical_or.reduceat(unknown, starts)


def _all_alike(tokens: np.ndarray, spans: np.ndarray | None) -> bool:
    """Whether words of different lengths all give one token."""
    if spans is None or (tokens != tokens[0]).any():
        return False
    lengths = spans[:, 1] - spans[:, 0]
    return bool((lengths != lengths[0]).any())
