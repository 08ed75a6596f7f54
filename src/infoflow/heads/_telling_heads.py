"""Heads that look at one place throughout a sentence, named."""

# T query token, S key token

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ._quantised import restore
from ._sentence_attention import AttentionOfKind, SentenceAttention

_CLEAR = 0.8  # share of the tokens whose strongest weight lies at that place
_FEWEST = 4  # tokens: in shorter sentences a place says nothing
_NAMED = 8  # heads at most
_ALIKE = 3  # of them that look at one place: many heads look at the first token
_OFFSETS = {-1: "the token before", 1: "the token after", 0: "the token itself", -2: "two tokens back"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TellingHead:
    """A head that does one thing with nearly all tokens of a sentence."""

    layer: int
    head: int
    place: str  # where it looks: "the token before", or a token of its own
    tokens: int  # whose strongest weight lies there
    of: int
    confidence: float  # mean of the strongest weights, 0 to 1

    @property
    def told(self) -> str:
        return f"looks at {self.place} ({self.tokens} of {self.of} tokens)"


def telling_heads(seen: SentenceAttention, kind: AttentionOfKind) -> tuple[TellingHead, ...]:
    """The heads of one kind that look at one place with four of five tokens, the most confident first; 3 of a place.

    A place is an offset (the token before, after, itself, two back) or one token. Offsets come first: where they tie
    with a token they tell more. The first token of a causal model sees itself alone and does not count. A name says
    what a head does in this sentence, no more; roles over a corpus are measured by `infoflow heads`.
    """
    texts = [token.text for token in seen.sentence.tokens[kind.keys_stack]]
    found = []
    for layer in kind.layers:
        for head, weights in enumerate(restore(layer.weights)):
            one = _telling(weights[1:] if kind.causal else weights, int(kind.causal), kind.kind == "self", texts)
            if one is not None:
                place, tokens, of, confidence = one
                found.append(
                    TellingHead(layer=layer.layer, head=head, place=place, tokens=tokens, of=of, confidence=confidence)
                )
    named, places = [], Counter[str]()
    for one in sorted(found, key=lambda one: (-one.confidence, one.layer, one.head)):
        places[one.place] += 1
        if places[one.place] <= _ALIKE:
            named.append(one)
    return tuple(named[:_NAMED])


def _telling(
    weights: np.ndarray, first: int, same_tokens: bool, texts: list[str]
) -> tuple[str, int, int, float] | None:
    """Place, tokens that look there, all tokens, and mean strongest weight; None where no place is clear."""
    if len(weights) < _FEWEST:
        return None
    best = weights.argmax(axis=1)
    confidence = float(weights.max(axis=1).mean())
    if same_tokens:
        offsets = best - np.arange(first, first + len(weights))
        for offset, name in _OFFSETS.items():
            # A token without such a neighbour cannot look at it.
            able = len(weights) - sum(not 0 <= i + offset < len(texts) for i in range(first, first + len(weights)))
            count = int((offsets == offset).sum())
            if able >= _FEWEST and count >= _CLEAR * able:
                return name, count, able, confidence
    counts = np.bincount(best, minlength=len(texts))
    if counts.max() >= _CLEAR * len(weights):
        return f"“{texts[int(counts.argmax())]}”", int(counts.max()), len(weights), confidence
    return None
