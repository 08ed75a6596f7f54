"""The occurrences in a map: a bounded number of chosen tokens, from sentences in the order of their hash."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
from transformers import PreTrainedTokenizerBase

from infoflow.corpus import NOT_A_WORD
from infoflow.flow import Reader, Row
from infoflow.foundation import hash64_array

_SENTENCES = 50_000  # maximum number searched for occurrences
_COUNTED = 5_000  # of these, for finding frequent words
_LOOKED_AT = 50  # occurrences of a token for measuring how its tags vary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MapPoints:
    """Occurrences, as columns of equal length, one of each sentence."""

    row: np.ndarray  # of the corpus
    position: np.ndarray
    token: np.ndarray  # its id
    word: np.ndarray  # index of its word, −1 if the tokenizer knows no words
    length: np.ndarray  # of its sentence in tokens

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: np.ndarray) -> "MapPoints":
        return MapPoints(**{field.name: getattr(self, field.name)[index] for field in fields(self)})


def count_words(reader: Reader) -> Counter[int]:
    """How often each token is a whole word, in the first sentences by hash."""
    counts: Counter[int] = Counter()
    for row in _in_hash_order(reader)[:_COUNTED].tolist():
        sentence = reader.sentence_rows(row, "clean", 0)[reader.source_stack]
        counts.update(sentence.tokens[whole_words(sentence)].tolist())
    return counts


def token_ids(tokenizer: PreTrainedTokenizerBase, words: Iterable[str], counts: Mapping[int, int]) -> dict[str, int]:
    """The token that is each whole word, at a sentence's start or inside; absent if none is counted.

    Among several, the most frequent.
    """
    found = {}
    for word in words:
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f" {word}")]
        single = [ids[0] for ids in encoded if len(ids) == 1 and counts.get(ids[0], 0)]
        if single:
            found[word] = max(single, key=lambda token: counts[token])
    return found


def frequent_words(tokenizer: PreTrainedTokenizerBase, counts: Counter[int], num: int) -> dict[str, int]:
    """The most frequent counted tokens with letters (in a corpus without letters, any), by their text."""
    texts = {token: str(tokenizer.decode([token])).strip() for token, _ in counts.most_common(10 * num)}
    lettered = {token: text for token, text in texts.items() if any(map(str.isalpha, text))} or texts
    found: dict[str, int] = {}
    for token, text in lettered.items():
        if len(found) < num:
            found.setdefault(text, token)
    return found


def choose_points(reader: Reader, tokens: Sequence[int], per_token: int) -> MapPoints:
    """Up to `per_token` occurrences of each token as a whole word, each from a different sentence."""
    stack, tokens = reader.source_stack, list(tokens)
    frequencies = reader.frequencies[stack]
    missing = {token: min(per_token, int(frequencies[token])) for token in tokens}
    found: list[tuple[int, ...]] = []
    for row in _in_hash_order(reader)[:_SENTENCES].tolist():
        if not any(missing.values()):
            break
        sentence = reader.sentence_rows(row, "clean", 0)[stack]
        wanted = [at for at in whole_words(sentence) if missing.get(int(sentence.tokens[at]), 0)]
        if wanted:
            # The rarest of the wanted tokens, so that a frequent one does not displace it.
            at = min(wanted, key=lambda at: (frequencies[sentence.tokens[at]], at))
            token = int(sentence.tokens[at])
            missing[token] -= 1
            found.append((row, int(at), token, int(sentence.words[at]), len(sentence.tokens)))
    ids = reader.corpus.content_ids
    found.sort(key=lambda each: (ids[each[0]], each[1]))
    columns = np.array(found, dtype=np.int64).reshape(-1, 5).T
    return MapPoints(**dict(zip((field.name for field in fields(MapPoints)), columns, strict=True)))


def _in_hash_order(reader: Reader) -> np.ndarray:
    return np.argsort(hash64_array(("token-map", reader.seed), reader.corpus.content_ids), kind="stable")


def whole_words(sentence: Row) -> np.ndarray:
    """Positions of tokens that are whole words; all positions if the tokenizer knows no words."""
    text = np.flatnonzero(~sentence.special)
    words = sentence.words[text]
    if (words == NOT_A_WORD).all():
        return text
    return text[(words != NOT_A_WORD) & (np.bincount(np.maximum(words, 0))[np.maximum(words, 0)] == 1)]


def tags_of(reader: Reader, points: MapPoints, column: str) -> list[str]:
    """The tag of each point's word; empty if it has none."""
    rows, of_row = np.unique(points.row, return_inverse=True)
    sentences = list(reader.corpus.select(rows).column(column))
    tags = [None if word == NOT_A_WORD else sentences[at][word] for at, word in zip(of_row, points.word, strict=True)]
    return [tag if tag and tag != "_" else "" for tag in tags]


def most_ambiguous(reader: Reader, tokens: dict[str, int], column: str) -> dict[str, int]:
    """The text of the token whose words' tags vary most (by entropy); empty if none has tags."""
    points = choose_points(reader, list(tokens.values()), _LOOKED_AT)
    tags = np.array(tags_of(reader, points, column))
    spread = {
        text: _entropy(np.unique(own, return_counts=True)[1])
        for text, token in tokens.items()
        if len(own := tags[(points.token == token) & (tags != "")])
    }
    best = max(spread, key=spread.__getitem__, default=None)
    return {} if best is None else {best: tokens[best]}


def _entropy(counts: np.ndarray) -> float:
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())
