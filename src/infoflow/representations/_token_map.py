"""Maps of occurrences of a few tokens in every layer, and the choice of these occurrences."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.corpus import NOT_A_WORD, length_batches, tag_columns
from infoflow.flow import Intervention, PaddedBatch, PassOptions, Reader, Row, check_finite, forward
from infoflow.foundation import UserError, current_display, hash64_array
from infoflow.models import tap
from infoflow.results import Column, TableSchema

from ._layer_maps import layer_maps, used_perplexity

_SENTENCES = 50_000  # maximum number of sentences searched for occurrences
_COUNTED = 5_000  # number of these sentences used to find frequent words
_LOOKED_AT = 50  # occurrences of a token for measuring how its tags vary


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MapPoints:
    """Occurrences as columns of equal length, at most one per sentence."""

    row: np.ndarray  # of the sentence in the corpus
    position: np.ndarray
    token: np.ndarray  # its id
    word: np.ndarray  # index of its word, −1 if the tokenizer does not report words
    length: np.ndarray  # number of tokens in its sentence

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def of(cls, found: Sequence[tuple[int, ...]]) -> "MapPoints":
        """The points from one tuple per occurrence, with all fields in order."""
        names = [field.name for field in fields(cls)]
        columns = np.array(found, dtype=np.int64).reshape(-1, len(names)).T
        return cls(**dict(zip(names, columns, strict=True)))

    def take(self, index: np.ndarray) -> "MapPoints":
        return MapPoints(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def joined(self, other: "MapPoints") -> "MapPoints":
        """These points, then the others."""
        names = [field.name for field in fields(self)]
        return MapPoints(**{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names})


def count_words(reader: Reader) -> Counter[int]:
    """How often each token is a whole word, in the sentences with the lowest hashes."""
    counts: Counter[int] = Counter()
    for row in _in_hash_order(reader)[:_COUNTED].tolist():
        sentence = reader.sentence_rows(row, "clean", 0)[reader.source_stack]
        counts.update(sentence.tokens[whole_words(sentence)].tolist())
    return counts


def token_ids(tokenizer: PreTrainedTokenizerBase, words: Iterable[str], counts: Mapping[int, int]) -> dict[str, int]:
    """The token of each word that is a single token (at a sentence's start or inside); absent if it was not counted.

    If there are several such tokens, the most frequent one is chosen.
    """
    found = {}
    for word in words:
        encoded = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (word, f" {word}")]
        single = [ids[0] for ids in encoded if len(ids) == 1 and counts.get(ids[0], 0)]
        if single:
            found[word] = max(single, key=lambda token: counts[token])
    return found


def frequent_words(tokenizer: PreTrainedTokenizerBase, counts: Counter[int], num: int) -> dict[str, int]:
    """The most frequent counted tokens with letters (in a corpus without letters, of all tokens), by their text."""
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
            # Take the rarest of the wanted tokens, so that a frequent one does not displace it.
            at = min(wanted, key=lambda at: (frequencies[sentence.tokens[at]], at))
            token = int(sentence.tokens[at])
            missing[token] -= 1
            found.append((row, int(at), token, int(sentence.words[at]), len(sentence.tokens)))
    ids = reader.corpus.content_ids
    found.sort(key=lambda each: (ids[each[0]], each[1]))
    return MapPoints.of(found)


def _in_hash_order(reader: Reader) -> np.ndarray:
    return np.argsort(hash64_array(("token-map", reader.seed), reader.corpus.content_ids), kind="stable")


def whole_words(sentence: Row) -> np.ndarray:
    """Positions of counted tokens that are whole words, or of all if the tokenizer does not report words."""
    text = np.flatnonzero(~sentence.special & sentence.counted)
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
    """The token whose words' tags vary most (by entropy), by its text; empty if no token has tags."""
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


_FEWEST = 12  # minimum number of points in a map
_CANDIDATES = 20  # most frequent words, which replace those that the corpus lacks
_TAGS = ("ccg", "upos", "xpos", "deprel")  # the first one that the corpus has is used, else any other column

TOKEN_MAP = TableSchema(
    name="token_map",
    description="t-SNE maps of occurrences of a few tokens, the same points in every layer; axes have no meaning. "
    "t-SNE is chaotic: vectors that differ by rounding, as with another batch size, give a different map.",
    columns=(
        Column("stack", "string", "", "encoder or decoder: the stack that reads the text"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("map", "string", "", "token, position or tag: what its colours show"),
        Column("point", "int64", "", "number of the occurrence, the same in every layer"),
        Column("x", "float64", "root mean square radius", "first coordinate in the map"),
        Column("y", "float64", "root mean square radius", "second coordinate in the map"),
        Column("token", "string", "", "the token's text, also where it was hidden"),
        Column("sentence", "int64", "", "id of its sentence in the corpus"),
        Column("position", "int64", "tokens", "index in its sentence, counting special tokens"),
        Column("tag", "string", "", "its word's tag, only in the map tag; empty where it has none"),
        Column("masked", "bool", "", "hidden behind a mask, as in training"),
        Column("perplexity", "float64", "points", "about how many neighbours count"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    name: str
    tokens: dict[str, int]
    hide: bool = False
    column: str = ""


class MapStates(NamedTuple):
    points: MapPoints
    states: list[Float[np.ndarray, "point width"]]  # one matrix per layer 0..L
    masked: Bool[np.ndarray, " point"]


class TokenMap(Intervention):
    """t-SNE maps of occurrences of a few tokens, followed through the layers.

    Each model has three maps. The first shows several tokens, distinguished by token; for a masked LM some of them are
    hidden as in its training (15 % of all tokens selected, 80 % of these masked). The second shows one token by
    position, the third one token by its word's tag, if the corpus has tags. If a corpus lacks the named tokens, its
    most frequent tokens replace them; the third map then takes the one whose tags vary most.

    The same call gives the same map, but t-SNE is chaotic: the rounding of vectors depends on the batch size (and on
    the machine), and is enough to move points and clusters. Only which vectors are close is stable between maps.

    Args:
        tokens: Tokens of the first map; each must be a single token of the model.
        by_position: Token of the second map.
        by_tag: Token of the third map.
        points: Maximum number of points in a map, one per sentence; time grows slightly faster than linearly.
        perplexity: See `layer_maps`.

    Source: [@voita2019evolution], section 6.
    """

    table: ClassVar[TableSchema] = TOKEN_MAP
    by_token = True

    def __init__(
        self,
        tokens: tuple[str, ...] = ("is", "are", "was", "were"),
        by_position: str = "it",
        by_tag: str = "is",
        points: int = 300,
        perplexity: float = 30.0,
    ) -> None:
        if len(tokens) < 2 or points < _FEWEST or perplexity < 1:
            raise UserError(
                f"A token map needs at least 2 tokens, {_FEWEST} points and a perplexity of 1. "
                f"Got {len(tokens)} tokens, {points} points and perplexity {perplexity}."
            )
        self.tokens, self.by_position, self.by_tag = tuple(tokens), by_position, by_tag
        self.points, self.perplexity = points, perplexity

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        plans = [plan for plan in self._plans(reader) if plan.tokens]
        frames = []
        with current_display().progress("Token maps", len(plans), "maps") as progress:
            for plan in plans:
                points = choose_points(reader, list(plan.tokens.values()), self.points // len(plan.tokens))
                if len(points) >= _FEWEST:
                    found = map_states(reader, points, options.tokens_per_batch, plan.hide)
                    frames.append(self._frame(reader, plan, found))
                progress.advance(1)
        if not frames:
            current_display().note(f"{self.name} of {reader.model.name} is skipped: no token occurs {_FEWEST} times.")
            return pd.DataFrame(columns=self.table.column_names)
        return pd.concat(frames, ignore_index=True)

    def _plans(self, reader: Reader) -> Iterator[_Plan]:
        tokenizer, counts = reader.model.require_tokenizer(), count_words(reader)
        frequent = frequent_words(tokenizer, counts, _CANDIDATES)
        several = token_ids(tokenizer, self.tokens, counts)
        if len(several) < 2:
            several = _first(frequent, len(self.tokens))
        # A masked LM is also shown tokens that are hidden.
        hide = reader.model.task == "masked-lm" and tokenizer.mask_token_id is not None
        yield _Plan(name="token", tokens=several, hide=hide)
        yield _Plan(name="position", tokens=token_ids(tokenizer, [self.by_position], counts) or _first(frequent, 1))
        columns = tag_columns(reader.corpus)
        if columns:
            column = next((name for name in _TAGS if name in columns), columns[0])
            tagged = token_ids(tokenizer, [self.by_tag], counts) or most_ambiguous(reader, frequent, column)
            if tagged:
                yield _Plan(name="tag", tokens=tagged, column=column)

    def _frame(self, reader: Reader, plan: _Plan, found: MapStates) -> pd.DataFrame:
        """One row per layer and point."""
        points, num = found.points, len(found.points)
        names = {token: text for text, token in plan.tokens.items()}
        maps = layer_maps(found.states, self.perplexity, reader.seed)
        one = pd.DataFrame(
            {
                "stack": reader.source_stack,
                "map": plan.name,
                "point": np.arange(num),
                "token": [names[token] for token in points.token.tolist()],
                "sentence": reader.corpus.ids[points.row],
                "position": points.position,
                "tag": tags_of(reader, points, plan.column) if plan.column else "",
                "masked": found.masked,
                "perplexity": used_perplexity(num, self.perplexity),
            }
        )
        return pd.concat(
            [one.assign(layer=layer, x=places[:, 0], y=places[:, 1]) for layer, places in enumerate(maps)],
            ignore_index=True,
        )


def _first(words: dict[str, int], num: int) -> dict[str, int]:
    return dict(list(words.items())[:num])


def map_states(reader: Reader, points: MapPoints, tokens_per_batch: int, hide: bool) -> MapStates:
    """Run the sentences of the points once; points that noise replaced by another token are left out."""
    order, parts, inputs = [], [], []
    with tap(reader.model, hidden=True) as tapped, torch.inference_mode():
        batches = length_batches(points.length.astype(np.int32), tokens_per_batch)
        for chosen in reader.even(points.row, batches):
            batch = _source_batch(reader, points.row[chosen], hide)
            at = (torch.arange(len(chosen)), torch.from_numpy(points.position[chosen]))
            inputs.append(batch.streams[reader.source_stack].input_ids[at].numpy())
            batch = batch.to(reader.model.device)
            forward(reader.model, batch)
            check_finite(reader.model, tapped.hidden, batch)
            states = tapped.hidden[reader.source_stack]
            parts.append(np.stack([layer[at].float().cpu().numpy() for layer in states]))
            order.append(chosen)
    back = np.argsort(np.concatenate(order))
    inputs, layers = np.concatenate(inputs)[back], np.concatenate(parts, axis=1)[:, back]
    masked = (inputs == reader.model.require_tokenizer().mask_token_id) & (inputs != points.token)
    kept = np.flatnonzero(masked | (inputs == points.token))
    return MapStates(points.take(kept), list(layers[:, kept]), masked[kept])


def _source_batch(reader: Reader, rows: np.ndarray, hide: bool) -> PaddedBatch:
    """A batch for only the stack that reads the text."""
    batch = reader.padded(rows)
    if hide:
        return reader.corrupted_batch(batch, "token-map", reader.seed)
    return replace(batch, streams={reader.source_stack: batch.streams[reader.source_stack]})
