"""The words whose static and contextual neighbours are compared, and the occurrences searched for neighbours."""

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float

from infoflow.corpus import length_batches
from infoflow.flow import Reader, check_finite, forward
from infoflow.foundation import hash64_array
from infoflow.models import tap

from ._map_points import MapPoints, choose_points, count_words, frequent_words, token_ids, whole_words


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordPoints:
    """Occurrences of chosen words first, then of any words."""

    words: dict[str, int]  # the chosen ones: token ids by text, most frequent first
    known: dict[str, int]  # all candidates for static neighbours
    texts: dict[int, str]  # of every token in `at`
    at: MapPoints
    queries: np.ndarray  # which of `at` are occurrences of the chosen words


def word_points(
    reader: Reader, words: int, least: int, occurrences: int, pool: int, named: tuple[str, ...] = ()
) -> WordPoints:
    """The most frequent single-token words with `occurrences` of each, and `pool` occurrences of any words.

    Everything depends on the text and its hashes: models with one tokenizer use the same occurrences.

    Args:
        reader: The corpus as the model reads it.
        words: Number of words.
        least: Minimum occurrences of a word to be chosen or to be a static neighbour.
        occurrences: Number for each word, each from a different sentence.
        pool: Number for any words, from sentences in the order of their hash.
        named: Words to use instead of the most frequent ones.
    """
    tokenizer, counts = reader.model.require_tokenizer(), count_words(reader)
    often = Counter({token: count for token, count in counts.items() if count >= least})
    known = frequent_words(tokenizer, often, len(often))
    chosen = token_ids(tokenizer, named, counts) if named else dict(list(known.items())[:words])
    own = choose_points(reader, list(chosen.values()), occurrences) if chosen else _pool(reader, {}, 0)
    every = frequent_words(tokenizer, counts, len(counts))
    texts = {token: text for text, token in {**every, **chosen}.items()}
    beside = _pool(reader, texts, pool)
    taken = set(zip(own.row.tolist(), own.position.tolist(), strict=True))
    places = zip(beside.row.tolist(), beside.position.tolist(), strict=True)
    new = [index for index, place in enumerate(places) if place not in taken]
    return WordPoints(
        words=chosen,
        known={**known, **chosen},
        texts=texts,
        at=_joined(own, beside.take(np.array(new, dtype=np.int64))),
        queries=np.arange(len(own)),
    )


def _pool(reader: Reader, texts: dict[int, str], size: int) -> MapPoints:
    """Occurrences of words in the first sentences by hash, until there are `size`."""
    found: list[tuple[int, int, int, int, int]] = []
    order = np.argsort(hash64_array(("word-pool", reader.seed), reader.corpus.content_ids), kind="stable")
    for row in order.tolist():
        if len(found) >= size:
            break
        sentence = reader.sentence_rows(row, "clean", 0)[reader.source_stack]
        for at in whole_words(sentence).tolist():
            if (token := int(sentence.tokens[at])) in texts:
                found.append((row, at, token, int(sentence.words[at]), len(sentence.tokens)))
    columns = np.array(found[:size], dtype=np.int64).reshape(-1, 5).T
    return MapPoints(**dict(zip(("row", "position", "token", "word", "length"), columns, strict=True)))


def _joined(first: MapPoints, second: MapPoints) -> MapPoints:
    names = ("row", "position", "token", "word", "length")
    return MapPoints(**{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names})


def layer_states(
    reader: Reader, points: MapPoints, tokens_per_batch: int
) -> list[Float[np.ndarray, "occurrence width"]]:
    """States 1..L of the points, in the stack that reads the text; each sentence is read once."""
    stack = reader.source_stack
    rows, first, place = np.unique(points.row, return_index=True, return_inverse=True)
    layers: list[np.ndarray] = []
    with tap(reader.model, hidden=True) as tapped, torch.inference_mode():
        for chosen in reader.even(rows, length_batches(points.length[first].astype(np.int32), tokens_per_batch)):
            batch = reader.padded(rows[chosen])
            batch = replace(batch, streams={stack: batch.streams[stack]}).to(reader.model.device)
            forward(reader.model, batch)
            check_finite(reader.model, tapped.hidden, batch)
            line = np.full(len(rows), -1)
            line[chosen] = np.arange(len(chosen))
            here = np.flatnonzero(line[place] >= 0)
            at = (torch.from_numpy(line[place[here]]), torch.from_numpy(points.position[here]))
            states = [state[at].float().cpu().numpy() for state in tapped.hidden[stack][1:]]
            layers = layers or [np.zeros((len(points), state.shape[1]), dtype=np.float32) for state in states]
            for layer, state in zip(layers, states, strict=True):
                layer[here] = state
    return layers
