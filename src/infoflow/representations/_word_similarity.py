"""How similar words are in each layer: words of a sentence, and random words."""

# B sentence, T token, N bootstrap block (64), K layer 0..L, D width, M words of a sentence

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.corpus import NOT_A_WORD
from infoflow.flow import (
    SAMPLE_COLUMNS,
    Activations,
    Measure,
    Need,
    Reader,
    SampleMeasure,
    SampleRequest,
    Stream,
    TokenSample,
)
from infoflow.foundation import NUM_BLOCKS, UserError, current_display, stream
from infoflow.results import Column, TableSchema

from ._geometry_table import GEOMETRY, Quantity, WordRows, check_words, geometry_row, in_space
from ._views import Jackknifed, average_of_blocks, sums_by, unit_rows

_LONGEST = 512  # longer sentences count as this long in statistics of length


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BatchWords:
    """Which tokens of a batch make up which word.

    Special tokens, padding and words without letter or digit are left out, as in `WordRows`.
    """

    merge: str
    """"mean", "first", "last", or "token" where words were not requested or the tokenizer does not report them."""
    tokens: Int[Tensor, " token"]  # index of each word's tokens in the flattened batch, word by word
    counts: Int[Tensor, " word"]  # number of tokens of each word
    sentences: Int[Tensor, " word"]  # row of the batch that each word is in

    @classmethod
    def of(cls, stream: Stream, merge: str, symbols: Int[Tensor, " id"]) -> "BatchWords":
        """The words of a stream; `symbols` are the token ids without letter or digit."""
        valid = stream.valid & stream.counted
        tokens = valid.flatten().nonzero()[:, 0]
        length = valid.shape[1]
        lexical = torch.isin(stream.input_ids.flatten()[tokens], symbols, invert=True)
        if merge == "token" or bool((stream.words[valid] == NOT_A_WORD).all()):
            tokens = tokens[lexical]
            return cls(merge="token", tokens=tokens, counts=torch.ones_like(tokens), sentences=tokens // length)
        in_words = stream.words.flatten()[tokens] != NOT_A_WORD
        tokens, lexical = tokens[in_words], lexical[in_words]
        places = tokens // length * length + stream.words.flatten()[tokens]
        kept = torch.isin(places, places[lexical])
        words, counts = torch.unique_consecutive(places[kept], return_counts=True)
        return cls(merge=merge, tokens=tokens[kept], counts=counts, sentences=words // length)

    def merged(self, states: Float[Tensor, "sentence token width"]) -> Float[Tensor, "word width"]:
        """One state per word, in float64."""
        rows = states.flatten(0, 1)
        ends = self.counts.cumsum(0)
        if self.merge == "mean":
            numbers = torch.arange(len(ends), device=rows.device).repeat_interleave(self.counts)
            return sums_by(numbers, rows[self.tokens].double(), len(ends)) / self.counts.unsqueeze(1)
        at = ends - self.counts if self.merge == "first" else ends - 1
        return rows[self.tokens[at]].double()


class IntraSentence(Measure):
    r"""Mean over sentences of `intra_sentence_similarity`: the cosine between each word and the sentence's mean.

    The baseline is the average similarity of all words, as published. `unrelated_intra_sentence_similarity` is the
    expected value for sentences of the same number of random words,

    $$ \frac1S \sum_s \sqrt{\frac{1 + (n_s - 1)\,\bar a}{n_s}} $$

    with $\bar a$ the average similarity. A word is part of its sentence's mean, so short sentences are similar even in
    an isotropic space. Words without letter or digit (punctuation) are left out, as in `WordGeometry`, as are sentences
    with fewer than two words, whose number is reported. If only words with a tag count (`PassOptions.where`), they take
    the place of the sentence.

    Args:
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.
        space: "raw", or "rank" for Spearman's correlation; centring would need a separate pass.

    Source: [@ethayarajh2019].
    """

    table: ClassVar[TableSchema] = GEOMETRY
    needs: frozenset[Need] = frozenset({"hidden"})
    by_token = True

    def __init__(self, words: str = "mean", space: str = "raw") -> None:
        check_words(words)
        if space not in ("raw", "rank"):
            raise UserError(f'space must be "raw" or "rank". Got {space}.')
        self.words, self.space = words, space
        self._sums: dict[tuple[str, str], dict[str, np.ndarray]] = {}  # (stack, words)
        self._symbols: dict[str, Int[Tensor, " id"]] = {}  # by stack

    def prepare(self, reader: Reader) -> None:
        self._symbols = {stack: torch.tensor(reader.symbols(stack), dtype=torch.int64) for stack in reader.frequencies}

    def update(self, activations: Activations) -> None:
        for stack, layers in activations.hidden.items():
            stream = activations.streams[stack]
            words = BatchWords.of(stream, self.words, self._symbols[stack].to(stream.input_ids.device))
            blocks = activations.blocks.to(words.sentences.device)
            parts = [self._layer(words, states, blocks) for states in layers]
            sums = {name: torch.stack([part[name] for part in parts], 1).cpu().numpy() for name in parts[0]}
            self._add((stack, words.merge), sums | {"lengths": _lengths(words, blocks)})

    def _layer(
        self, words: BatchWords, states: Float[Tensor, "sentence token width"], blocks: Int[Tensor, " sentence"]
    ) -> dict[str, Float[Tensor, "..."]]:
        """Sums per block: for words (unit vectors and number) and for sentences (similarity and number)."""
        vectors = words.merged(states)
        vectors = in_space(vectors.cpu(), self.space).to(vectors.device)
        units = unit_rows(vectors)
        ones = units.any(1).double()
        totals = unit_rows(sums_by(words.sentences, vectors, len(blocks)))
        numbers = sums_by(words.sentences, ones, len(blocks))
        cosines = sums_by(words.sentences, (units * totals[words.sentences]).sum(1), len(blocks))
        counted = (numbers > 1) & totals.any(1)
        return {
            "similarity": sums_by(blocks, torch.where(counted, cosines / numbers.clamp(min=1), 0.0), NUM_BLOCKS),
            "sentences": sums_by(blocks, counted.double(), NUM_BLOCKS),
            "short": sums_by(blocks, (~counted).double(), NUM_BLOCKS),
            "units": sums_by(blocks[words.sentences], units, NUM_BLOCKS),
            "words": sums_by(blocks[words.sentences], ones, NUM_BLOCKS),
        }

    def merge(self, other: "IntraSentence") -> None:
        for key, sums in other._sums.items():
            self._add(key, sums)

    def state_dict(self) -> dict[str, np.ndarray]:
        return {".".join((*key, name)): array for key, sums in self._sums.items() for name, array in sums.items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = {}
        for name, array in state.items():
            stack, words, part = name.split(".")
            self._add((stack, words), {part: array})

    def result(self) -> pd.DataFrame:
        rows = [
            {"stack": stack, "words": words, "layer": layer, "space": self.space, **row}
            for (stack, words), sums in self._sums.items()
            for layer in range(sums["similarity"].shape[1])
            for row in _rows(sums, layer)
        ]
        # It reads every sentence instead of a sample.
        return pd.DataFrame(rows, columns=self.table.column_names).assign(tokens_requested=0, tokens_kept=0)

    def _add(self, key: tuple[str, str], sums: dict[str, np.ndarray]) -> None:
        held = self._sums.setdefault(key, {})
        for name, array in sums.items():
            held[name] = held[name] + array if name in held else array.copy()


def _rows(sums: dict[str, np.ndarray], layer: int) -> list[dict[str, Any]]:
    similarity, sentences = sums["similarity"][:, layer], sums["sentences"][:, layer]
    units, words = (torch.from_numpy(sums[name][:, layer]) for name in ("units", "words"))
    average = average_of_blocks(units, words)
    counts = {"count": int(sentences.sum()), "left_out": int(sums["short"][:, layer].sum())}
    found: dict[Quantity, Jackknifed] = {
        "intra_sentence_similarity": _mean(similarity, sentences),
        "unrelated_intra_sentence_similarity": _unrelated(average, sums["lengths"]),
    }
    return [
        geometry_row(
            quantity, each.value, each.replicates, average.value, baseline_replicates=average.replicates, **counts
        )
        for quantity, each in found.items()
    ]


def _mean(sums: Float[np.ndarray, " block"], counts: Float[np.ndarray, " block"]) -> Jackknifed:
    with np.errstate(invalid="ignore", divide="ignore"):
        without = (sums.sum() - sums) / (counts.sum() - counts)
        return Jackknifed(value=float(sums.sum() / counts.sum()), without_block=without)


def _unrelated(average: Jackknifed, lengths: Float[np.ndarray, "block length"]) -> Jackknifed:
    """Expected similarity of sentences of these lengths if word pairs have the average similarity."""
    numbers = np.arange(2, lengths.shape[1])

    def expected(similarity: float, histogram: Float[np.ndarray, " length"]) -> float:
        squares = (1 + (numbers - 1) * similarity) / numbers
        kept = histogram[2:]
        return float(np.sqrt(np.clip(squares, 0, None)) @ kept / kept.sum()) if kept.any() else np.nan

    total = lengths.sum(0)
    without = [expected(a, total - own) for a, own in zip(average.without_block, lengths, strict=True)]
    return Jackknifed(value=expected(average.value, total), without_block=np.array(without))


def _lengths(words: BatchWords, blocks: Int[Tensor, " sentence"]) -> Float[np.ndarray, "block length"]:
    """Number of sentences by block and number of words."""
    lengths = words.sentences.bincount(minlength=len(blocks)).clamp(max=_LONGEST)
    places = blocks * (_LONGEST + 1) + lengths
    return places.bincount(minlength=NUM_BLOCKS * (_LONGEST + 1)).view(NUM_BLOCKS, -1).double().cpu().numpy()


_COSINE_BINS = 80
_BINS = 32  # Euclidean: between 32 and 64, since bins are a power of two wide

DISTANCE_DISTRIBUTION = TableSchema(
    name="distance_distribution",
    version=2,
    description="Histograms of the cosine and of the Euclidean distance between random words, by layer.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("metric", "string", "", "cosine or euclidean"),
        Column("bin_low", "float64", "", "lower end of the bin, which it includes"),
        Column(
            "bin_high", "float64", "", "upper end; Euclidean bins are a power of two wide, so those of two models nest"
        ),
        Column("share", "float64", "", "share of the pairs in the bin"),
        Column(
            "baseline", "float64", "", "share in the bin for an isotropic Gaussian with the layer's mean squared length"
        ),
        Column("count", "int64", "pairs", "pairs of words; zero vectors have no cosine"),
        *SAMPLE_COLUMNS,
    ),
)


class DistanceDistribution(SampleMeasure):
    """Histograms of cosines and Euclidean distances between random pairs of words, layer by layer.

    Words are as in `WordGeometry`. A pair consists of two different occurrences of any words.

    Args:
        occurrences: At most this many sampled tokens.
        pairs: Number of random pairs, the same in every layer.
        words: How a word's tokens become one state: "mean", "first" or "last"; "token" takes tokens as words.

    Source: [@vazquez2021].
    """

    table: ClassVar[TableSchema] = DISTANCE_DISTRIBUTION

    def __init__(self, occurrences: int = 20_000, pairs: int = 20_000, words: str = "mean") -> None:
        check_words(words)
        if pairs < 1:
            raise UserError(f"pairs must be at least 1. Got {pairs}.")
        self.occurrences, self.pairs, self.words = occurrences, pairs, words
        self.request = SampleRequest(occurrences=occurrences)

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        kept = WordRows.of(sample, self.words).sample
        if len(kept) < 2:
            current_display().note(f"{self.name} of {sample.facts.model} is skipped: the sample has no two words.")
            return pd.DataFrame(columns=self.table.column_names)
        first, second = _pairs(len(kept), self.pairs)
        gaussian = torch.from_numpy(stream("isotropic-gaussian").standard_normal((len(kept), kept.width)))
        controls = {metric: measured(gaussian[first], gaussian[second]) for metric, measured in _METRICS.items()}
        frames = []
        for layer in range(kept.num_states):
            states = torch.from_numpy(kept.states(layer))
            x, y = states[first].double(), states[second].double()
            scales = {"cosine": 1.0, "euclidean": float(states.double().square().mean().sqrt())}
            for metric, measured in _METRICS.items():
                frame = _histogram(metric, measured(x, y), controls[metric] * scales[metric])
                frames.append(frame.assign(layer=layer, metric=metric))
        return pd.concat(frames, ignore_index=True).assign(stack=kept.facts.stack, **sample.sizes(self.request))


def _pairs(num: int, pairs: int) -> tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]:
    """Random pairs of different rows."""
    random = stream("distance-pairs")
    first = random.integers(0, num, pairs)
    second = (first + random.integers(1, num, pairs)) % num
    return torch.from_numpy(first), torch.from_numpy(second)


def _cosines(x: Float[Tensor, "pair width"], y: Float[Tensor, "pair width"]) -> Float[np.ndarray, " defined"]:
    cosines = (unit_rows(x) * unit_rows(y)).sum(1)
    return cosines[x.any(1) & y.any(1)].clamp(-1, 1).numpy()


def _distances(x: Float[Tensor, "pair width"], y: Float[Tensor, "pair width"]) -> Float[np.ndarray, " pair"]:
    return torch.linalg.vector_norm(x - y, dim=1).numpy()


_METRICS = {"cosine": _cosines, "euclidean": _distances}


def _edges(metric: str, *values: Float[np.ndarray, " _"]) -> Float[np.ndarray, " edge"]:
    if metric == "cosine":
        return np.linspace(-1, 1, _COSINE_BINS + 1)
    top = max(float(each.max()) for each in values)
    width = 2.0 ** np.ceil(np.log2(top / (2 * _BINS))) if top > 0 else 1.0
    return width * np.arange(np.floor(top / width) + 2)


def _histogram(
    metric: str, values: Float[np.ndarray, " pair"], controls: Float[np.ndarray, " control"]
) -> pd.DataFrame:
    edges = _edges(metric, values, controls)
    share, baseline = (np.histogram(each, edges)[0] / max(len(each), 1) for each in (values, controls))
    columns: dict[str, Any] = {"bin_low": edges[:-1], "bin_high": edges[1:], "share": share, "baseline": baseline}
    return pd.DataFrame(columns | {"count": len(values)})
