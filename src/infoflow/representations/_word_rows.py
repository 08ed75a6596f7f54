"""From a token sample to words: merged, without punctuation, with their types."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from infoflow.corpus import NOT_A_WORD
from infoflow.flow import TokenSample
from infoflow.foundation import UserError, current_display, hash64_array

WORDS = ("mean", "first", "last", "token")


def check_words(words: str) -> None:
    if words not in WORDS:
        raise UserError(f"words must be one of {', '.join(WORDS)}. Got {words}.")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordRows:
    """Word occurrences of a sample, one per row."""

    sample: TokenSample
    words: str
    """How they were merged: "token" if the tokenizer knows no words."""
    types: Int[np.ndarray, " occurrence"]
    """Equal words have equal numbers, 0..W−1."""

    @classmethod
    def of(cls, sample: TokenSample, words: str) -> "WordRows":
        """The sample's words (or tokens) that have a letter or a digit."""
        if words != "token" and len(sample) and (sample.occurrences.word == NOT_A_WORD).all():
            current_display().note(
                f"The tokenizer of {sample.facts.model} is slow and knows no words: every token counts as one."
            )
            words = "token"
        lexical = np.isin(sample.occurrences.token, sample.facts.symbols, invert=True)
        if words == "token":
            kept = sample.take(lexical)
            return cls(sample=kept, words=words, types=_numbered(kept.occurrences.token))
        merged = sample.words(words)
        kept = merged.take(np.isin(_places(merged), _places(sample)[lexical]))
        return cls(sample=kept, words=words, types=_numbered(kept.occurrences.word_type))

    def frequent(self, types: Int[np.ndarray, " occurrence"], least: int) -> Bool[np.ndarray, " occurrence"]:
        """Whether each row's type (in `types`) has at least `least` rows."""
        return np.bincount(types, minlength=1)[types] >= least


def _places(sample: TokenSample) -> Int[np.ndarray, " occurrence"]:
    """A number for each word of each sentence, shared by its tokens."""
    at = sample.occurrences
    return hash64_array(("word-place",), at.sentence, at.word, at.draw).view(np.int64)


def _numbered(names: Int[np.ndarray, " occurrence"]) -> Int[np.ndarray, " occurrence"]:
    return np.unique(names, return_inverse=True)[1]
