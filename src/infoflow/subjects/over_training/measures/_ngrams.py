"""Statistical models of text: n-grams with absolute discounting, and word alignment by IBM model 1."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from infoflow.foundation import UserError, words_and_signs

# N position, V vocabulary, H history of one order, E continuation that was seen after a history

_DISCOUNT = 0.75
_UNSEEN = 0.5  # added to each type's count in the unigram distribution
NO_TOKEN = _NONE = -1  # no token, or an unseen history


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Order:
    """The continuations of each history of n − 1 tokens."""

    codes: Int[np.ndarray, " H"]  # ascending: number of the history without its first token · base + that token
    starts: Int[np.ndarray, " H1"]  # start of each history's continuations
    tokens: Int[np.ndarray, " E"]
    keys: Int[np.ndarray, " E"]  # ascending: number of the history · base + token
    kept: Float[np.ndarray, " E"]  # relative frequency after discounting
    chance: Float[np.ndarray, " E"]  # Q_n
    gain: Float[np.ndarray, " E"]  # ln Q_n − ln(share · Q_{n−1})
    share: Float[np.ndarray, " H"]  # weight of the shorter history
    information: Float[np.ndarray, " H"]  # Σ Q_n ln Q_n
    over_types: Float[np.ndarray, " H"]  # Σ ln Q_n


@dataclass(frozen=True, slots=True, eq=False)
class Divergences:
    """Divergences of the n-gram distribution Q and a model's P at each position, in nats; rows are orders, from 1."""

    from_ngram: Float[np.ndarray, "order N"]  # KL(Q‖P)
    to_ngram: Float[np.ndarray, "order N"]  # KL(P‖Q)
    from_ngram_uniform: Float[np.ndarray, "order N"]  # the same for a uniform P
    to_ngram_uniform: Float[np.ndarray, "order N"]


class NgramModel:
    r"""Q_n(next token | last n − 1 tokens) from counts, for every n up to `order`.

    $$ Q_1(w) = \frac{c(w) + \frac12}{C + V/2}, \qquad
       Q_n(w \mid h) = \frac{\max(c(h, w) - 0.75,\, 0)}{c(h)} + 0.75\, \frac{d(h)}{c(h)}\, Q_{n-1}(w \mid h') $$

    | symbol   | here                                                                       |
    |----------|----------------------------------------------------------------------------|
    | $c(h,w)$ | how often token w follows history h; $c(h) = \sum_w c(h,w)$                |
    | $d(h)$   | how many different tokens follow h  |
    | $h'$     | the history h without its first token, used alone if h was never seen      |
    | $V$      | number of types                                                            |

    Source: absolute discounting [@ney1994], interpolated.

    Args:
        tokens: Tokens of all sentences, concatenated.
        offsets: Start of each sentence in `tokens`, and the end of the last sentence.
        size: V.
        order: Longest n.
        counted: Mask of tokens counted as next tokens (all are history); default: all.
        start: A token before every sentence, if any.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        offsets: np.ndarray,
        size: int,
        order: int,
        counted: np.ndarray | None = None,
        start: int | None = None,
    ) -> None:
        ids = np.asarray(tokens, dtype=np.int64)
        chosen = np.arange(len(ids)) if counted is None else np.flatnonzero(counted)
        self.size, self.order = size, order
        self._base = max(size, int(ids.max(initial=0)) + 1, (start or 0) + 1)
        self.counts: Int[np.ndarray, " V"] = np.bincount(ids[chosen], minlength=size)[:size]
        self.unigram: Float[np.ndarray, " V"] = (self.counts + _UNSEEN) / (self.counts.sum() + _UNSEEN * size)
        self._logs = np.log(self.unigram)
        self._orders: list[_Order] = []
        first = np.repeat(offsets[:-1], np.diff(offsets))[chosen]
        histories, following = np.zeros(len(chosen), dtype=np.int64), ids[chosen]
        for back in range(1, order):
            before = _earlier(ids, chosen, first, back, start)
            held = (histories != _NONE) & (before != _NONE)
            codes = np.full(len(chosen), _NONE)
            codes[held] = histories[held] * self._base + before[held]
            self._orders.append(self._counted(codes[held], following[held]))
            histories = _find(self._orders[-1].codes, codes)

    def _counted(self, codes: np.ndarray, following: np.ndarray) -> _Order:
        """Count the next order from the events (history, token)."""
        known, history = np.unique(codes, return_inverse=True)
        keys, counts = np.unique(history * self._base + following, return_counts=True)
        owner, tokens = keys // self._base, keys % self._base
        starts = np.searchsorted(owner, np.arange(len(known) + 1))
        total, different = np.bincount(owner, counts, len(known)), np.diff(starts)
        share = _DISCOUNT * different / total
        kept = (counts - _DISCOUNT) / total[owner]
        parents = self._chain(known // self._base, len(self._orders))
        shorter = self._chances([one[owner] for one in parents], tokens)
        chance = kept + share[owner] * shorter
        parent_information, parent_over_types = self._of_histories(parents[-1], len(self._orders))
        seen = np.bincount(owner, shorter, len(known))
        seen_information = np.bincount(owner, shorter * np.log(shorter), len(known))
        unseen = share * (np.log(share) * (1 - seen) + parent_information - seen_information)
        gain = np.log(chance) - np.log(share[owner] * shorter)
        return _Order(
            codes=known,
            starts=starts,
            tokens=tokens,
            keys=keys,
            kept=kept,
            chance=chance,
            gain=gain,
            share=share,
            information=np.bincount(owner, chance * np.log(chance), len(known)) + unseen,
            over_types=parent_over_types + self.size * np.log(share) + np.bincount(owner, gain, len(known)),
        )

    def _chain(self, histories: np.ndarray, level: int) -> list[np.ndarray]:
        """Indices of histories of order `level` + 1 and of all shorter ones within them, shortest first."""
        chain = [histories]
        for order in reversed(self._orders[:level]):
            chain.insert(0, order.codes[chain[0]] // self._base)
        return chain

    def _of_histories(self, histories: np.ndarray, level: int) -> tuple[np.ndarray, np.ndarray]:
        """Σ Q ln Q and Σ ln Q for histories of order `level` + 1."""
        if level == 0:
            ones = np.ones(len(histories))
            return ones * float(self.unigram @ self._logs), ones * float(self._logs.sum())
        order = self._orders[level - 1]
        return _at(order.information, histories, np.nan), _at(order.over_types, histories, np.nan)

    def _chances(self, chain: Sequence[np.ndarray], tokens: np.ndarray) -> np.ndarray:
        """Q of tokens after histories, for the highest order in `chain`."""
        chances = self.unigram[tokens]
        for histories, order in zip(chain[1:], self._orders, strict=False):
            found = _find(order.keys, np.where(histories != _NONE, histories * self._base + tokens, _NONE))
            chances = _at(order.chance, found, chances * _at(order.share, histories, 1.0))
        return chances

    def histories(self, before: Int[np.ndarray, "N back"]) -> list[Int[np.ndarray, " N"]]:
        """Indices of the histories of each order, −1 if unseen; `before`: the last token first, −1: none."""
        chain = [np.zeros(len(before), dtype=np.int64)]
        for order, tokens in zip(self._orders, np.asarray(before, dtype=np.int64).T, strict=False):
            held = (chain[-1] != _NONE) & (tokens != _NONE) & (tokens < self._base)
            chain.append(_find(order.codes, np.where(held, chain[-1] * self._base + tokens, _NONE)))
        return chain

    def chances(
        self, tokens: Int[np.ndarray, " N"], before: Int[np.ndarray, "N back"], order: int
    ) -> Float[np.ndarray, " N"]:
        """Q_order of tokens (all below V) after the tokens `before` them, nearest first."""
        return self._chances(self.histories(before[:, : order - 1]), np.asarray(tokens, dtype=np.int64))

    def divergences(
        self, log_chances: Float[np.ndarray, "N V"], before: Int[np.ndarray, "N back"], order: int
    ) -> Divergences:
        """Divergences of all orders up to `order`. Each position costs two sums over V and its seen continuations."""
        logs = np.asarray(log_chances, dtype=np.float64)
        chances = np.exp(logs)
        own = np.einsum("nv,nv->n", chances, np.where(chances > 0, logs, 0.0))
        expected, reverse = logs @ self.unigram, chances @ self._logs
        found: list[list[np.ndarray]] = [[], [], [], []]
        chain = self.histories(before[:, : order - 1])
        information, over_types = self._of_histories(chain[0], 0)
        for level in range(order):
            if level:
                histories, one = chain[level], self._orders[level - 1]
                known = histories != _NONE
                rows, entries = _continuations(histories, one.starts)
                there = logs[rows, one.tokens[entries]]
                share = _at(one.share, histories, 1.0)
                expected = share * expected + np.bincount(rows, one.kept[entries] * there, len(logs))
                reverse = reverse + np.log(share) + np.bincount(rows, np.exp(there) * one.gain[entries], len(logs))
                longer = self._of_histories(histories, level)
                information, over_types = np.where(known, longer, (information, over_types))
            found[0].append(information - expected)
            found[1].append(own - reverse)
            found[2].append(information + np.log(self.size))
            found[3].append(-np.log(self.size) - over_types / self.size)
        return Divergences(*(np.stack(one) for one in found))

    def sample(
        self,
        order: int,
        lengths: Sequence[int],
        generator: np.random.Generator,
        start: int = _NONE,
        never: Collection[int] = (),
    ) -> list[Int[np.ndarray, " length"]]:
        """Texts of these lengths drawn from Q_order, after `start`.

        A sentence ends where a token of `never` is drawn; the next sentence then begins after `start`.
        """
        cumulative, out = np.cumsum(self.unigram), set(never)
        texts = []
        for length in lengths:
            text, history = [], [start]
            while len(text) < length:
                before = np.array([[*reversed(history), *[_NONE] * order][: order - 1]], dtype=np.int64)
                chain = [int(one[0]) for one in self.histories(before)]
                token = self._draw(chain, generator, cumulative)
                if token in out:
                    history = [start]
                else:
                    text.append(token)
                    history = [*history, token][-order:]
            texts.append(np.array(text, dtype=np.int64))
        return texts

    def _draw(self, chain: Sequence[int], generator: np.random.Generator, cumulative: np.ndarray) -> int:
        for history, order in zip(reversed(chain[1:]), reversed(self._orders[: len(chain) - 1]), strict=True):
            if history == _NONE or generator.random() < order.share[history]:
                continue  # draw from the shorter history
            part = slice(order.starts[history], order.starts[history + 1])
            kept = np.cumsum(order.kept[part])
            return int(order.tokens[part][min(np.searchsorted(kept, generator.random() * kept[-1]), len(kept) - 1)])
        return min(int(np.searchsorted(cumulative, generator.random() * cumulative[-1])), self.size - 1)


def _earlier(ids: np.ndarray, chosen: np.ndarray, first: np.ndarray, back: int, start: int | None) -> np.ndarray:
    """The token `back` positions before each chosen token; `start` just before the sentence, −1 before that."""
    place = chosen - back
    inside = ids[np.maximum(place, 0)]
    return np.where(place >= first, inside, np.where(place == first - 1, _NONE if start is None else start, _NONE))


def _find(sorted_codes: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Index of each code, −1 if missing."""
    if not len(sorted_codes):
        return np.full(len(codes), _NONE)
    place = np.minimum(np.searchsorted(sorted_codes, codes), len(sorted_codes) - 1)
    return np.where(sorted_codes[place] == codes, place, _NONE)


def _at(values: np.ndarray, places: np.ndarray, otherwise: np.ndarray | float) -> np.ndarray:
    """The value at each index; `otherwise` where the index is −1."""
    if not len(values):
        return np.broadcast_to(np.asarray(otherwise, dtype=np.float64), places.shape)
    return np.where(places != _NONE, values[places], otherwise)


def _continuations(histories: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of a row and a continuation of the row's history."""
    known = np.flatnonzero(histories != _NONE)
    begin, end = starts[histories[known]], starts[histories[known] + 1]
    sizes = end - begin
    rows = np.repeat(known, sizes)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rows, np.repeat(begin, sizes) + within


# P pair of sentences, E (target word, source word or none) of one pair


def words_of(text: str) -> list[str]:
    """Lower-cased words and punctuation marks; each character of a script without spaces is a word.

    >>> words_of("L'eau, ici.")
    ['l', "'", 'eau', ',', 'ici', '.']
    """
    return words_and_signs(text.lower())


class WordAligner:
    r"""Word aligner fitted to translated sentences: the source word of each target word, and word-by-word translation.

    $$ p(f_j, a_j = i) = t(f_j \mid e_i) \begin{cases} p_0 & i = 0 \text{ (no word)} \\
       (1 - p_0)\, e^{-λ |i/m - j/n|} / Z_j & i = 1..m \end{cases} $$

    t by expectation maximisation; λ and p_0 are fixed. A target word aligns to the i of the largest term, or to no
    word.

    Source: IBM model 1 [@brown1993] with the prior of [@dyer2013].

    Args:
        pairs: Words of source and target.
        iterations: Iterations of expectation maximisation.
        tension: λ.
        null: p_0.

    Raises:
        UserError: No pair has words on both sides.

    >>> pairs = [(["red", "cat"], ["chat", "rouge"]), (["cat"], ["chat"])]
    >>> WordAligner(pairs, tension=0.5).align(["red", "cat"], ["chat", "rouge"]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        pairs: Iterable[tuple[Sequence[str], Sequence[str]]],
        iterations: int = 5,
        tension: float = 4.0,
        null: float = 0.08,
    ) -> None:
        kept = [(source, target) for source, target in pairs if source and target]
        if not kept:
            raise UserError("A word aligner is fitted to pairs of sentences with words on both sides. Got none.")
        self._tension, self._null = tension, null
        self._source = _numbers((source for source, _ in kept), first=1)  # 0: no word
        self._target = _numbers((target for _, target in kept), first=0)
        owners, keys, priors, size = [], [], [], 0
        for source, target in kept:
            grid = self._prior(len(source), len(target))
            ids = np.array([0, *(self._source[word] for word in source)])
            of_target = np.array([self._target[word] for word in target])
            owners.append(np.repeat(size + np.arange(len(target)), len(ids)))
            keys.append((ids[None] * len(self._target) + of_target[:, None]).ravel())
            priors.append(grid.ravel())
            size += len(target)
        self._keys, place = np.unique(np.concatenate(keys), return_inverse=True)
        self._chances = self._fitted(np.concatenate(owners), place, np.concatenate(priors), size, iterations)

    def _fitted(
        self, owner: np.ndarray, place: np.ndarray, prior: np.ndarray, size: int, iterations: int
    ) -> np.ndarray:
        given = self._keys // len(self._target)
        chances = np.ones(len(self._keys))
        for _ in range(iterations):
            terms = chances[place] * prior
            shares = terms / np.bincount(owner, terms, size)[owner]
            counts = np.bincount(place, shares, len(self._keys))
            chances = counts / np.bincount(given, counts, len(self._source) + 1)[given]
        return chances

    def _prior(self, num_source: int, num_target: int) -> np.ndarray:
        """(target word, 1 + source word); the first column is for no word."""
        i, j = np.arange(1, num_source + 1) / num_source, np.arange(1, num_target + 1) / num_target
        near = np.exp(-self._tension * np.abs(i[None] - j[:, None]))
        near *= (1 - self._null) / near.sum(axis=1, keepdims=True)
        return np.concatenate([np.full((num_target, 1), self._null), near], axis=1)

    def align(self, source: Sequence[str], target: Sequence[str]) -> Int[np.ndarray, " target"]:
        """Position of the source word of each target word; −1: none."""
        if not source or not target:
            return np.full(len(target), _NONE)
        ids = np.array([0, *(self._source.get(word, _NONE) for word in source)])
        of_target = np.array([self._target.get(word, _NONE) for word in target])
        terms = self._translation(ids[None], of_target[:, None]) * self._prior(len(source), len(target))
        return np.where(terms.max(axis=1) > 0, terms.argmax(axis=1), 0) - 1

    def _translation(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """t of each pair of words; 0 for words that never occurred in the same sentence pair."""
        keys = np.where((source == _NONE) | (target == _NONE), _NONE, source * len(self._target) + target)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._chances[place], 0.0)

    def word_by_word(self, source: Sequence[str]) -> list[str]:
        """The most likely translation of each known word, in the source's order."""
        names = list(self._target)
        found = []
        for word in source:
            if word in self._source:
                start = self._source[word] * len(self._target)
                low, high = np.searchsorted(self._keys, [start, start + len(self._target)])
                found.append(names[self._keys[low + int(self._chances[low:high].argmax())] - start])
        return found


def _numbers(sentences: Iterable[Sequence[str]], first: int) -> dict[str, int]:
    """Words in the order of their first occurrence."""
    known: dict[str, int] = {}
    for sentence in sentences:
        for word in sentence:
            known.setdefault(word, first + len(known))
    return known
