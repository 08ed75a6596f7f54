"""How much a translation depends on its source and on its prefix, and how monotone its word order is."""

# S source token, J target position (decoder step)

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, block_of, current_display
from infoflow.heads import SentenceScorer, token_relevance
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class Reordering:
    """How monotone an alignment is: 1 if the target follows the source word by word."""

    frs_b: float  # fuzzy reordering score over the steps between aligned words
    frs_a: float  # the same with the steps from the beginning and to the end
    tau_share: float  # share of pairs of words in order; ties are in order


def fuzzy_reordering(ranks: ArrayLike) -> Reordering:
    r"""Fuzzy reordering scores and share of ordered pairs, from source ranks in target order.

    $$ \mathrm{FRS}_B = 1 - \frac{\mathrm{jumps}}{n - 1}, \qquad \mathrm{FRS}_A = 1 - \frac{\mathrm{jumps}_A}{n + 1},
       \qquad \tau = 1 - \frac{\mathrm{inversions}}{n (n - 1) / 2} $$

    A step of 0 or +1 is not a jump; A also counts a start and an end that are not a step of +1. All are 1 below two
    words. Which variant [@voita2021language] used is unverified, so both are given.

    Args:
        ranks: Source positions of the aligned words, in target order; renumbered without unaligned words.

    >>> fuzzy_reordering([0, 1, 4, 2, 3])
    Reordering(frs_b=0.5, frs_a=0.5, tau_share=0.8)
    """
    order = np.asarray(ranks)
    if order.ndim != 1:
        raise UserError(f"Ranks of source words must be one list in target order. Got shape {order.shape}.")
    num = len(order)
    if num < 2:
        return Reordering(frs_b=1.0, frs_a=1.0, tau_share=1.0)
    known, dense = np.unique(order, return_inverse=True)
    steps = np.diff(dense)
    jumps = int(((steps != 0) & (steps != 1)).sum())
    ends = int(dense[0] != 0) + int(dense[-1] != len(known) - 1)
    inversions = int((dense[:, None] > dense)[np.triu_indices(num, 1)].sum())
    return Reordering(
        frs_b=1 - jumps / (num - 1),
        frs_a=1 - (jumps + ends) / (num + 1),
        tau_share=1 - inversions / (num * (num - 1) / 2),
    )


def source_share(source: ArrayLike, prefix: ArrayLike) -> tuple[float, float]:
    r"""Share of the relevance on the source, and the entropy of this relevance over source tokens, in nats.

    $$ \frac{\sum_{src} r}{\sum_{src} r + \sum_{prefix} r}, \qquad -\sum_{src} p \ln p, \quad p = r / \sum_{src} r $$

    NaN without relevance. Source: [@voita2021].

    Args:
        source: Relevance of each source token, (token,), or of its dimensions, (token, width): then r is the sum of
            their absolute values.
        prefix: Likewise for the tokens written so far.

    >>> [round(number, 4) for number in source_share([0.3, 0.2, 0.1], [0.25, 0.15])]
    [0.6, 1.0114]
    """
    of_source, of_prefix = (_by_token(values) for values in (source, prefix))
    total, whole = of_source.sum(), of_source.sum() + of_prefix.sum()
    if not whole > 0:
        return float("nan"), float("nan")
    shares = of_source[of_source > 0] / total
    entropy = float(-(shares * np.log(shares)).sum()) if total > 0 else float("nan")
    return float(total / whole), entropy


def _by_token(values: ArrayLike) -> np.ndarray:
    relevance = np.abs(np.asarray(values, dtype=np.float64))
    return relevance.sum(axis=-1) if relevance.ndim == 2 else relevance


# How much a translation depends on its source, and how much on its prefix.

RULES = ("voita", "alti")  # rules of `token_relevance` whose relevance is positive and sums to 1 for each prediction
EXPLAINED = ("top", "reference")
MEASURES = ("share", "entropy", "prefix_entropy")
_MEAN = -1
_LOOKED_AT = 2000  # sentences used to find the most common lengths
_SHORTEST = 4  # tokens on either side, if the corpus has such sentences
_CONSERVED = 0.05  # share of the relevance that may be lost: stabilisers take .005 in two layers of width 64

SOURCE_CONTRIBUTION = TableSchema(
    name="source_contribution",
    description="Share of the source in the relevance of all tokens for the next token of a translation, and how "
    "widely the relevance is spread, on sentences of one length. The reference is read at every step. Shares depend on "
    "the rule: compare a rule only with itself.",
    columns=(
        Column("rule", "string", "", "method of heads.token_relevance"),
        Column("explained", "string", "", "token whose prediction is explained: top, the likeliest one, or reference"),
        Column(
            "position",
            "int64",
            "tokens",
            "step of the decoder, from 0, which sees the start symbol alone; -1: mean over steps from 1",
        ),
        Column(
            "measure",
            "string",
            "",
            "share: relevance on the source; entropy: of the relevance over source tokens; prefix_entropy: the same "
            "over the target tokens read so far, including the start symbol",
        ),
        Column("source_length", "int64", "tokens", "source tokens of each sentence"),
        Column("target_length", "int64", "tokens", "decoder steps of each sentence"),
        *estimate_columns(
            "share of 1 (share), nats (entropies)",
            "the measure, mean over predictions",
            "the measure if every token had the same relevance",
            "predictions",
        ),
    ),
)


class SourceContribution(Intervention):
    r"""`source_share` by target position [@voita2021], for two rules of relevance.

    $$ \mathrm{share}(j) = \frac{\sum_{src} r}{\sum_{src} r + \sum_{prefix} r} $$

    Entropies depend on the number of tokens, so all sentences have the same lengths on both sides: the most common ones
    in the corpus. Relevance must be conserved; otherwise the rule has no rows and a note gives the deficit.

    Args:
        sentences: Maximum number, chosen by a hash of their text: the same at every checkpoint.
        explained: `"top"`, or `"reference"`, which is the same token throughout training. ALTI treats both alike.
        rules: Subset of `RULES`.
    """

    table: ClassVar[TableSchema] = SOURCE_CONTRIBUTION

    def __init__(self, sentences: int = 50, explained: str = "top", rules: tuple[str, ...] = RULES) -> None:
        if sentences < 1:
            raise UserError(f"sentences must be at least 1. Got {sentences}.")
        if explained not in EXPLAINED:
            raise UserError(f'explained must be "top" or "reference". Got {explained}.')
        if not rules or not set(rules) <= set(RULES):
            raise UserError(f"rules must be among {', '.join(RULES)}. Got {', '.join(rules) or 'none'}.")
        self.sentences, self.explained, self.rules = sentences, explained, rules

    def refusal(self, model: Model) -> str | None:
        if model.task != "seq2seq":
            return f"it has no source besides its text: it is a {model.task} model"
        return model.anatomy.outside_attention()

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        rows = self._choose(reader)
        frames = []
        with current_display().progress(f"Sources of {reader.model.name}", len(rows) * len(self.rules)) as progress:
            for rule in self.rules:
                sums = _Sums()
                for row in rows:
                    for position, source, prefix in self._relevances(reader, row, rule):
                        sums.add(reader.corpus.content_ids[row : row + 1], position, source, prefix)
                    progress.advance(1)
                frames += self._rows(sums, rule, reader.model.name)
        return pd.DataFrame(frames, columns=self.table.column_names)

    def _choose(self, reader: Reader) -> list[int]:
        """Sentences with the most common pair of lengths; in ties, with the longer pair."""
        if not reader.has_target:
            raise NothingToRead(f"{reader.model.name} has nothing to predict: {reader.no_target}.")
        rows = SentenceScorer(reader).choose(_LOOKED_AT, "source-contribution").tolist()
        lengths = {}
        for row in rows:
            read = reader.sentence_rows(row, "clean", 0)
            lengths[row] = len(read[reader.source_stack].tokens), len(read["decoder"].tokens)
        long = [pair for pair in lengths.values() if min(pair) >= _SHORTEST] or list(lengths.values())
        counts = Counter(long)
        best = max(counts, key=lambda pair: (counts[pair], pair))
        return [row for row in rows if lengths[row] == best][: self.sentences]

    def _relevances(self, reader: Reader, row: int, rule: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """For each decoder step: its number, the relevance of the source tokens, and that of the prefix tokens."""
        streams = reader.padded(np.array([row])).streams
        source, target = streams[reader.source_stack], streams["decoder"]
        batch = {
            "input_ids": source.input_ids,
            "attention_mask": source.real.long(),
            "decoder_input_ids": target.input_ids,
            "labels": target.labels,
        }
        for step, frame in self._frames(reader.model, batch, rule):
            values = [
                frame[frame["stack"] == stack]["relevance"].to_numpy() for stack in (reader.source_stack, "decoder")
            ]
            yield step, values[0], values[1][: step + 1]

    def _frames(self, model: Model, batch: dict[str, torch.Tensor], rule: str) -> Iterator[tuple[int, pd.DataFrame]]:
        if self.explained == "top" or rule == "alti":
            for step, frame in token_relevance(model, batch, method=rule).groupby("position"):
                yield int(str(step)), frame
            return
        for step, token in enumerate(batch["labels"][0].tolist()):
            yield step, token_relevance(model, batch, method=rule, position=step, target=token)

    def _rows(self, sums: "_Sums", rule: str, name: str) -> list[dict[str, Any]]:
        if not sums.worst <= _CONSERVED:
            current_display().note(
                f"{SOURCE_CONTRIBUTION.name} of {name} by {rule} is left out: {sums.worst:.1%} of the relevance of a "
                f"prediction was not conserved; at most {_CONSERVED:.0%} may be lost."
            )
            return []
        keys = {"rule": rule, "explained": self.explained, "source_length": sums.source, "target_length": sums.target}
        return [keys | row for row in sums.rows()]


class _Sums:
    """Sums of each measure by position and bootstrap block."""

    def __init__(self) -> None:
        self.worst, self.source = 0.0, 0
        self._sums: dict[int, Float[np.ndarray, "measure block"]] = {}
        self._counts: dict[int, Float[np.ndarray, " block"]] = {}

    @property
    def target(self) -> int:
        return 1 + max(self._sums, default=-1)

    def add(self, sentence: np.ndarray, position: int, source: np.ndarray, prefix: np.ndarray) -> None:
        block = int(block_of(sentence)[0])
        self.source = len(source)
        self.worst = max(self.worst, abs(1 - float(source.sum() + prefix.sum())))
        share, entropy = source_share(source, prefix)
        _, of_prefix = source_share(prefix, source)
        sums = self._sums.setdefault(position, np.zeros((len(MEASURES), NUM_BLOCKS)))
        sums[:, block] += (share, entropy, of_prefix)
        self._counts.setdefault(position, np.zeros(NUM_BLOCKS))[block] += 1

    def rows(self) -> Iterator[dict[str, Any]]:
        later = [position for position in sorted(self._sums) if position >= 1]
        groups = [(position, [position]) for position in sorted(self._sums)] + ([(_MEAN, later)] if later else [])
        for name, positions in groups:
            sums, counts = (sum(each[position] for position in positions) for each in (self._sums, self._counts))
            evenly = [(self.source / (self.source + 1 + at), np.log(self.source), np.log(1 + at)) for at in positions]
            spread = np.mean(evenly, axis=0)
            for measure, values, baseline in zip(MEASURES, np.asarray(sums), spread, strict=True):
                scale: Scale = "share" if measure == "share" else "positive"
                numbers = ratio_estimate(values, np.asarray(counts), float(baseline), scale=scale)
                yield {"position": name, "measure": measure, **numbers}
