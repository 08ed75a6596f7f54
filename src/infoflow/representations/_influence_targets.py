"""Tokens to remove for measuring their influence: one per sentence and frequency bin, chosen from tokens alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from infoflow.flow import RankStrata, Reader
from infoflow.foundation import hash64_array

Pool = Literal["others", "after"]
Role = Literal["target", "control"]
ROLES: tuple[Role, ...] = ("target", "control")
_CHUNK = 4096  # sentences read at a time, in drawing order, until every bin is full


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InfluenceTargets:
    """Sentences in drawing order with the token of one bin to remove, the target, and a control.

    The control is a token of the same sentence with any rank, so both are removed from sentences of equal length.
    """

    row: np.ndarray  # int64, row of the encoded corpus
    sentence: np.ndarray  # int64, `Corpus.content_ids`
    length: np.ndarray  # int64, tokens of the row, special ones included
    others: np.ndarray  # int64, number of other tokens of the row, without special ones
    target: np.ndarray  # int64, index of the target among the row's tokens
    after_target: np.ndarray  # int64, number of the others after the target
    control: np.ndarray  # int64, index of the control
    after_control: np.ndarray  # int64

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: np.ndarray | slice) -> "InfluenceTargets":
        return replace(self, **{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def counts(self, role: Role, pool: Pool) -> np.ndarray:
        """(sentences,) occurrences that the removed token may influence."""
        return self.others if pool == "others" else getattr(self, f"after_{role}")

    def starts(self, role: Role, pool: Pool) -> np.ndarray:
        """(sentences,) such occurrences before those of each sentence."""
        counts = self.counts(role, pool)
        return counts.cumsum() - counts

    def size(self, pools: Sequence[Pool]) -> int:
        """Number of occurrences that targets and controls have in every pool."""
        return min(int(self.counts(role, pool).sum()) for role in ROLES for pool in pools)

    def enough_for(self, size: int, pools: Sequence[Pool]) -> "InfluenceTargets":
        """The first sentences that provide `size` occurrences for every pool."""
        last = max(int((self.starts(role, pool) < size).sum()) for role in ROLES for pool in pools)
        return self.take(slice(last))


def draw_targets(reader: Reader, stack: str, strata: RankStrata, pools: Sequence[Pool]) -> dict[int, InfluenceTargets]:
    """Targets of every bin until they influence `strata.per_bin` occurrences, or sentences run out.

    Sentences come in the order of a hash of (seed, sentence id), the same for every bin and model. In each, the
    token with the lowest hash of (seed, sentence id, position) is the control, and the one with the lowest among
    those of the bin is its target. A sentence of a single token influences nothing and is skipped.
    """
    ranks = reader.ranks[stack]
    occupied = np.unique(strata.of(ranks))
    drawn: dict[int, list[InfluenceTargets]] = {int(index): [] for index in occupied[occupied >= 0]}
    sizes = dict.fromkeys(drawn, 0)
    for tokens, ids in _chunks(reader, stack):
        bins, controls = strata.of(ranks[ids]), tokens.take(_one_per_sentence(tokens, reader.seed))
        for index in [index for index in drawn if sizes[index] < strata.per_bin]:
            inside = tokens.take(bins == index)
            found = _beside(inside.take(_one_per_sentence(inside, reader.seed)), controls)
            drawn[index].append(found)
            sizes[index] += found.size(pools)
        if min(sizes.values(), default=strata.per_bin) >= strata.per_bin:
            break
    return {index: _concatenate(parts) for index, parts in drawn.items()}


def _chunks(reader: Reader, stack: str) -> Iterator[tuple[InfluenceTargets, np.ndarray]]:
    """Every token as a target, and its id, some thousand sentences at a time in drawing order."""
    rows = reader.rows
    sentences = reader.corpus.content_ids[rows]
    rows = rows[np.lexsort((sentences, hash64_array(("influence-sentence", reader.seed), sentences)))]
    for start in range(0, len(rows), _CHUNK):
        parts, ids = zip(*(_tokens(reader, stack, int(row)) for row in rows[start : start + _CHUNK]), strict=True)
        yield _concatenate(list(parts)), np.concatenate(ids)


def _tokens(reader: Reader, stack: str, row: int) -> tuple[InfluenceTargets, np.ndarray]:
    sentence = reader.sentence_rows(row, "clean", 0)[stack]
    position = np.flatnonzero(~sentence.special)
    if len(position) == 1:
        position = position[:0]
    num = len(position)
    each, later = np.ones(num, dtype=np.int64), np.arange(num)[::-1]
    targets = InfluenceTargets(
        row=each * row,
        sentence=each * int(reader.corpus.content_ids[row]),
        length=each * len(sentence.tokens),
        others=each * (num - 1),
        target=position,
        after_target=later,
        control=position,
        after_control=later,
    )
    return targets, sentence.tokens[position]


def _one_per_sentence(tokens: InfluenceTargets, seed: int) -> np.ndarray:
    """Indices of each sentence's target with the lowest hash, sentences in order."""
    hashes = hash64_array(("influence-token", seed), tokens.sentence, tokens.target)
    order = np.lexsort((tokens.target, hashes, tokens.row))
    first = np.ones(len(order), dtype=bool)
    first[1:] = np.diff(tokens.row[order]) != 0
    return np.sort(order[first])


def _beside(targets: InfluenceTargets, controls: InfluenceTargets) -> InfluenceTargets:
    """The targets with the controls of their sentences; both are in drawing order."""
    own = controls.take(np.isin(controls.row, targets.row))
    return replace(targets, control=own.target, after_control=own.after_target)


def _concatenate(parts: list[InfluenceTargets]) -> InfluenceTargets:
    return InfluenceTargets(
        **{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(InfluenceTargets)}
    )
