"""Static and contextual neighbours: the words near a word's static vector, and near each of its occurrences."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int

from infoflow.corpus import length_batches
from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader, check_finite, forward
from infoflow.foundation import UserError, hash64_array
from infoflow.models import Model, tap, weight_of
from infoflow.results import Column, TableSchema

from ._token_map import MapPoints, choose_points, count_words, frequent_words, token_ids, whole_words

# Which words are near an occurrence of a word, and how much a word's occurrences agree on them.


def nearest_of_other_words(
    states: Float[np.ndarray, "occurrence width"],
    word: Int[np.ndarray, " occurrence"],
    sentence: Int[np.ndarray, " occurrence"],
    queries: Int[np.ndarray, " query"],
    k: int,
) -> tuple[Int[np.ndarray, "query neighbour"], Float[np.ndarray, "query neighbour"]]:
    """For each query, the `k` nearest words (by their nearest occurrence) and their cosines; nearest first.

    Occurrences of the query's own word and of its sentence do not count, since the former would take most places and
    the latter are near regardless of their meaning. Missing neighbours are −1 and NaN; the first row wins ties.
    """
    unit = unit_vectors(states)
    cosine = unit[queries] @ unit.T
    cosine[(word[queries, None] == word) | (sentence[queries, None] == sentence)] = -np.inf
    order = np.argsort(word, kind="stable")
    starts = np.flatnonzero(np.diff(word[order], prepend=word[order[:1]] - 1))
    best = np.maximum.reduceat(cosine[:, order], starts, axis=1)
    words = np.argsort(-best, axis=1, kind="stable")[:, :k]
    nearest = np.full((len(queries), k), -1)
    values = np.full((len(queries), k), np.nan)
    ends = np.append(starts[1:], len(order))
    for query, place in np.argwhere(np.isfinite(np.take_along_axis(best, words, axis=1))):
        own = order[starts[words[query, place]] : ends[words[query, place]]]
        nearest[query, place] = own[np.argmax(cosine[query, own])]
        values[query, place] = cosine[query, nearest[query, place]]
    return nearest, values


def overlap(words: Int[np.ndarray, "query neighbour"]) -> Float[np.ndarray, "query query"]:
    r"""Jaccard overlap of the sets of words (−1: none) of any two queries; 0 for two empty sets.

    $$ |A \cap B| \, / \, |A \cup B| $$
    """
    known = np.unique(words[words >= 0])
    within = np.zeros((len(words), len(known)))
    rows, places = np.nonzero(words >= 0)
    within[rows, np.searchsorted(known, words[rows, places])] = 1
    both, size = within @ within.T, within.sum(axis=1)
    either = size[:, None] + size - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def disagreement(overlaps: Float[np.ndarray, "query query"], pairs: Bool[np.ndarray, "query query"]) -> float:
    """One minus the mean overlap of the chosen pairs of different queries; NaN without any."""
    chosen = pairs & ~np.eye(len(pairs), dtype=bool)
    return float(1 - overlaps[chosen].mean()) if chosen.any() else float("nan")


def two_groups(states: Float[np.ndarray, "occurrence width"]) -> Int[np.ndarray, " occurrence"]:
    """Two groups, 0 or 1: each occurrence joins the closer (cosine) of the two occurrences that are farthest apart.

    The first occurrence is in group 0.

    >>> two_groups(np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.9], [0.8, 0.1]])).tolist()
    [0, 1, 1, 0]
    """
    unit = unit_vectors(states)
    cosine = unit @ unit.T
    one, other = np.unravel_index(np.argmin(cosine), cosine.shape)
    group = (cosine[:, other] > cosine[:, one]).astype(np.int64)
    return group ^ group[0]


def unit_vectors(states: Float[np.ndarray, "row width"]) -> Float[np.ndarray, "row width"]:
    """Rows normalised to length 1 in double precision; a zero row is unchanged."""
    wide = np.asarray(states, dtype=np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.divide(wide, lengths, out=np.zeros_like(wide), where=lengths > 0)


STATIC = -1
_FEWEST = 2  # minimum occurrences of a word for disagreement

WORD_NEIGHBOURS = TableSchema(
    name="word_neighbours",
    version=2,
    description="Nearest words to a word's own vector (layer 0, occurrence −1) and to some of its occurrences in every "
    "layer, with their sentences; the same words and occurrences for all models of one tokenizer. "
    "Examples, "
    "not statistics.",
    columns=(
        Column("stack", "string", "", "the stack that reads the text"),
        Column("layer", "int64", "", "0: the word's input embedding; else 1..L"),
        Column("word", "string", "", "a frequent word that is one token"),
        Column("least", "int64", "occurrences", "rarer words are left out"),
        Column(
            "disagreement",
            "float64",
            "share",
            "1 − mean Jaccard overlap of the neighbours of two occurrences of the word; NaN for layer 0",
        ),
        Column(
            "baseline",
            "float64",
            "share",
            "the same for two occurrences of different words of the table; NaN for layer 0",
        ),
        Column("occurrence", "int64", "", "number of the occurrence; −1: none, the static vector"),
        Column(
            "group",
            "int64",
            "",
            "0 or 1: nearer to the one or the other of the word's two occurrences that are farthest apart; "
            "−1 for layer 0",
        ),
        Column("sentence", "int64", "", "id of the sentence in the corpus; −1 for layer 0"),
        Column("text", "string", "", "the sentence"),
        Column("begin", "int64", "characters", "where the word begins in the sentence"),
        Column("end", "int64", "characters", "where the word ends in the sentence"),
        Column("rank", "int64", "", "rank of the neighbour; 0: the nearest"),
        Column("neighbour", "string", "", "another word"),
        Column("cosine", "float64", "", "cosine of the two vectors"),
        Column("neighbour_sentence", "int64", "", "id of the neighbour's sentence; −1 for layer 0"),
        Column("neighbour_text", "string", "", "the neighbour's sentence"),
        Column("neighbour_begin", "int64", "characters", "where the neighbour begins"),
        Column("neighbour_end", "int64", "characters", "where the neighbour ends"),
    ),
)


class WordNeighbours(Intervention):
    r"""Nearest words of a word's static vector and of its occurrences in every layer ([@peters2018deep], table 4).

    A static vector is a row of the model's input embeddings (for skip-gram, that is the whole model). In context a
    neighbour is the nearest occurrence (cosine) of another word in another sentence, from a pool chosen by hash; each
    word counts once. A word whose occurrences have different neighbours has several senses or uses. With \(N_i\) the
    neighbours of occurrence i, disagreement is

    $$ 1 - \overline{|N_i \cap N_j| \, / \, |N_i \cup N_j|}. $$

    The upper limit (`baseline`) is the value for two occurrences of different words, and the control is an untrained
    model. The words are the most frequent ones that are single tokens; none is chosen by hand.

    Args:
        words: Maximum number of words.
        occurrences: Maximum number of occurrences for each word.
        k: Number of neighbours.
        pool: Occurrences of any words that may be neighbours.
        least: Minimum occurrences of a word.
        named: Words to use instead; those that the corpus lacks, or the tokenizer splits, are left out.
    """

    table: ClassVar[TableSchema] = WORD_NEIGHBOURS
    static: ClassVar[bool] = True
    by_token = True

    def __init__(
        self,
        words: int = 60,
        occurrences: int = 6,
        k: int = 5,
        pool: int = 3000,
        least: int = 5,
        named: tuple[str, ...] = (),
    ) -> None:
        if min(words, k, pool, least) < 1 or occurrences < _FEWEST:
            raise UserError(
                f"Neighbours of words need at least 1 word, 1 neighbour and {_FEWEST} occurrences. Got {words} words, "
                f"{k} neighbours, {occurrences} occurrences, a pool of {pool} and words that occur {least} times."
            )
        self.words, self.occurrences, self.k, self.pool, self.least = words, occurrences, k, pool, least
        self.named = tuple(named)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        points = word_points(reader, self.words, self.least, self.occurrences, self.pool, self.named)
        if not points.words:
            raise NothingToRead(f"no word of {reader.corpus.name} is one token and occurs {self.least} times")
        rows = list(_static_rows(reader, points, self.k))
        if any(stack.layers for stack in reader.model.anatomy.stacks):
            place = cache(partial(_place, reader, points.at))  # the same neighbours occur in many layers
            for layer, states in enumerate(layer_states(reader, points.at, options.tokens_per_batch), start=1):
                rows += _layer_rows(points, place, states, layer, self.k)
        frame = pd.DataFrame(rows, columns=[name for name in self.table.column_names if name not in ("stack", "least")])
        return frame.assign(stack=reader.source_stack, least=self.least)[self.table.column_names]


def static_vectors(model: Model) -> Float[np.ndarray, "token width"]:
    """The model's input matrix; for an encoder–decoder, the encoder's."""
    module = model.module.get_encoder() if len(model.anatomy.stacks) > 1 else model.module
    return weight_of(module.get_input_embeddings()).float().cpu().numpy()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordPoints:
    """Occurrences: first those of the chosen words, then those of any words."""

    words: dict[str, int]  # the chosen words: token ids by text, most frequent first
    known: dict[str, int]  # all candidates for static neighbours
    texts: dict[int, str]  # of every token in `at`
    at: MapPoints
    queries: np.ndarray  # indices in `at` of the chosen words' occurrences


def _static_rows(reader: Reader, points: WordPoints, k: int) -> Iterator[dict[str, Any]]:
    names, tokens = list(points.known), np.array(list(points.known.values()))
    unit = unit_vectors(static_vectors(reader.model)[tokens])
    for word in points.words:
        at = names.index(word)
        cosine = unit @ unit[at]
        cosine[at] = -np.inf
        for rank, near in enumerate(np.argsort(-cosine, kind="stable")[: min(k, len(names) - 1)].tolist()):
            yield {
                "layer": 0,
                "word": word,
                "disagreement": np.nan,
                "baseline": np.nan,
                "occurrence": STATIC,
                "group": STATIC,
                **_NOWHERE,
                "rank": rank,
                "neighbour": names[near],
                "cosine": float(cosine[near]),
                **{f"neighbour_{name}": value for name, value in _NOWHERE.items()},
            }


_NOWHERE: dict[str, Any] = {"sentence": STATIC, "text": "", "begin": 0, "end": 0}


def _place(reader: Reader, points: MapPoints, index: int) -> dict[str, Any]:
    """Sentence and word position of an occurrence."""
    row = int(points.row[index])
    start, end = reader.characters(row, int(points.position[index]))
    sentence = reader.corpus[row]
    return {"sentence": sentence.id, "text": sentence.text, "begin": start, "end": end}


def _layer_rows(
    points: WordPoints,
    place: Callable[[int], dict[str, Any]],
    states: Float[np.ndarray, "occurrence width"],
    layer: int,
    k: int,
) -> Iterator[dict[str, Any]]:
    at, queries, texts = points.at, points.queries, points.texts
    nearest, cosines = nearest_of_other_words(states, at.token, at.row, queries, k)
    overlaps = overlap(np.where(nearest >= 0, at.token[nearest], -1))
    own = at.token[queries]
    same = own[:, None] == own
    baseline = disagreement(overlaps, ~same)
    for word, token in points.words.items():
        of_word = np.flatnonzero(own == token)
        if len(of_word) < _FEWEST:
            continue
        shared = {
            "layer": layer,
            "word": word,
            "disagreement": disagreement(overlaps[np.ix_(of_word, of_word)], same[np.ix_(of_word, of_word)]),
            "baseline": baseline,
        }
        groups = two_groups(states[queries[of_word]])
        for number, (query, group) in enumerate(zip(of_word.tolist(), groups.tolist(), strict=True)):
            here = {**shared, "occurrence": number, "group": group, **place(int(queries[query]))}
            for rank, near in enumerate(nearest[query].tolist()):
                if near < 0:
                    break
                yield {
                    **here,
                    "rank": rank,
                    "neighbour": texts.get(int(at.token[near]), ""),
                    "cosine": float(cosines[query, rank]),
                    **{f"neighbour_{name}": value for name, value in place(near).items()},
                }


def word_points(
    reader: Reader, words: int, least: int, occurrences: int, pool: int, named: tuple[str, ...] = ()
) -> WordPoints:
    """`occurrences` of each of the most frequent single-token words, and `pool` occurrences of any words.

    The choice depends only on hashes of the text, so models with the same tokenizer use the same occurrences.
    """
    tokenizer, counts = reader.model.require_tokenizer(), count_words(reader)
    often = Counter({token: count for token, count in counts.items() if count >= least})
    known = frequent_words(tokenizer, often, len(often))
    chosen = token_ids(tokenizer, named, counts) if named else dict(list(known.items())[:words])
    own = choose_points(reader, list(chosen.values()), occurrences) if chosen else _pool(reader, {}, 0)
    every = frequent_words(tokenizer, counts, len(counts))
    texts = {token: text for text, token in {**every, **chosen}.items()}
    others = _pool(reader, texts, pool)
    taken = set(zip(own.row.tolist(), own.position.tolist(), strict=True))
    places = zip(others.row.tolist(), others.position.tolist(), strict=True)
    new = [index for index, place in enumerate(places) if place not in taken]
    return WordPoints(
        words=chosen,
        known={**known, **chosen},
        texts=texts,
        at=own.joined(others.take(np.array(new, dtype=np.int64))),
        queries=np.arange(len(own)),
    )


def _pool(reader: Reader, texts: dict[int, str], size: int) -> MapPoints:
    """`size` occurrences of words, from the sentences with the lowest hashes."""
    found: list[tuple[int, int, int, int, int]] = []
    order = np.argsort(hash64_array(("word-pool", reader.seed), reader.corpus.content_ids), kind="stable")
    for row in order.tolist():
        if len(found) >= size:
            break
        sentence = reader.sentence_rows(row, "clean", 0)[reader.source_stack]
        for at in whole_words(sentence).tolist():
            if (token := int(sentence.tokens[at])) in texts:
                found.append((row, at, token, int(sentence.words[at]), len(sentence.tokens)))
    return MapPoints.of(found[:size])


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
