"""Estimates of an analysis's cost (bytes, passes, seconds of each measure) from counts and the speed of the machine."""

# Seconds are those of a small model on short sentences (`_REFERENCE`), scaled by the work of each measure. They were
# chosen on runs of that model, of MiniLM, and of texts with 2,000 to 32,000 tokens.

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from infoflow._transformers import Conv1D
from infoflow.corpus import Corpus
from infoflow.flow import (
    AbstractMeasure,
    AttentionByBlocks,
    Intervention,
    Measure,
    PassOptions,
    SampleMeasure,
    attention_size,
    read_whole,
)
from infoflow.foundation import UserError
from infoflow.heads import LONGEST_SCORED, MOST_EXPLAINED
from infoflow.models import empty_model, existing, find_tokenizers

from ._analyze import chosen_measures, corpus_of
from ._external import AnalyzeOptions
from ._measures import wanted_at

_QUANTISED_BYTES = {"int8": 1}
_ROWS, _REPEATS = 512, 8  # of the matrix benchmark
_FIXED = 0.08  # seconds that every measure takes to encode and sort the sentences
_ATTENTION = 0.085  # seconds to compute and show the attention that measures of heads share
_OVERHEAD = 200  # cost of norms, softmax, activations and copies for one number of a state, in products


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """The sizes that determine the work of an analysis."""

    lengths: np.ndarray  # tokens of each sentence
    layers: int
    heads: int  # in each layer
    width: int
    vocabulary: int
    linear: int  # weights of linear layers, each of which multiplies every token
    head: int  # of these, the weights of the output matrix, which is not quantised
    predicts: str  # "masked-lm", "other" or "nothing"
    columns: tuple[str, ...]  # annotation of the corpus
    rate: float  # products and sums per second in layers of this width

    @property
    def sentences(self) -> int:
        return len(self.lengths)

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    @property
    def squares(self) -> int:
        """Sum over sentences of the squared number of tokens."""
        return int((self.lengths**2).sum())

    @property
    def longest(self) -> int:
        return int(self.lengths.max(initial=1))

    @property
    def pass_seconds(self) -> float:
        """Seconds of one forward pass over all sentences."""
        attention = 2 * self.layers * self.width * self.squares
        others = _OVERHEAD * self.layers * 16 * self.width * self.tokens
        return (2 * self.linear * self.tokens + attention + others) / self.rate


_REFERENCE = Counts(
    lengths=np.linspace(5, 51, 200).astype(np.int64), layers=4, heads=4, width=128, vocabulary=200,
    linear=4 * 12 * 128**2 + 128 * (128 + 200), head=128 * 200, predicts="masked-lm", columns=(),
    rate=93e9,
)  # fmt: skip
"""The model, corpus and machine of costs.json."""


def _share(measure: Any, counts: Counts) -> float:
    """Share of the sentences that a measure reads again in its own passes."""
    sentences = getattr(measure, "sentences", None) or counts.sentences
    return min(sentences, counts.sentences) / counts.sentences


def _explained(measure: Any, counts: Counts) -> float:
    """Products of a text's tokens and of its predictions that relevance explains, summed over the texts it reads."""
    total = float(_of_texts(counts).sum())
    return min(_share(measure, counts) * total, measure.sentences * MOST_EXPLAINED**2)


def _of_texts(counts: Counts) -> np.ndarray:
    return counts.lengths * np.minimum(counts.lengths, MOST_EXPLAINED)


def _of_predictions(measure: Any, counts: Counts) -> float:
    """Work on states and on attention: in texts of 2,700 tokens divided by the number of heads, both cost the same."""
    length = float(np.average(counts.lengths, weights=_of_texts(counts)))
    return counts.layers * _explained(measure, counts) * (1 + counts.heads * length / 2700)


def _read(measure: Any, counts: Counts) -> int:
    occurrences = getattr(measure, "occurrences", None) or getattr(measure, "per_bin", None) or counts.tokens
    return min(int(occurrences), counts.tokens)


_PASSES: dict[str, Callable[[Any, Counts], float]] = {
    "Importance": lambda m, c: 3 * _share(m, c),
    "SpecialGradient": lambda m, c: 3 * _share(m, c),
    "Ablation": lambda m, c: _share(m, c) * (1 + c.heads * (c.layers + 1)),  # without one head, or all but one
    "PruningCurve": lambda m, c: _share(m, c) * (5 * len(m.shares) + c.heads * (c.layers + 1) / 2),
    "EncoderContext": lambda m, c: _share(m, c) * (1 + c.layers),
    "InfluenceByFrequency": lambda m, c: 3 * len(m.edges) * min(1.0, m.per_bin / c.tokens),
    "Relevance": lambda m, c: 2 * _explained(m, c) / c.tokens,
    "TellingSentences": lambda m, c: min(1.0, 100 / c.sentences),
    "PatternScores": lambda m, c: m.sequences * m.length * m.repeats / c.tokens,
}
"""Passes that a measure runs itself, by its class; see `_passes` for classes that are not listed."""
_SCORED = {"SpecialGradient", "Importance", "Ablation", "PruningCurve", "EncoderContext"}
"""Measures that run the model many times, and leave out very long texts."""
_OF_PREDICTIONS = {"Lens", "Relevance", *_SCORED}


def _of_states(m: Any, c: Counts) -> float:
    return _read(m, c) * (c.layers + 1) * c.width


_LAWS: dict[str, Callable[[Any, Counts], float]] = {
    "states": _of_states,
    "covariances": lambda m, c: (_read(m, c) + c.width) * (c.layers + 1) * c.width**2,
    "pairs of states": lambda m, c: _of_states(m, c) * min(_read(m, c), 4000),
    "clusters": lambda m, c: _of_states(m, c) * min(500, max(10, c.tokens // 30)),
    "attention": lambda m, c: c.layers * c.heads * (c.squares + 100 * c.tokens),
    "predictions": _of_predictions,
    "pairs of heads": lambda m, c: _share(m, c) * (c.layers * c.heads) ** 2 * c.squares,
    "updates": lambda m, c: m.steps * c.layers * (1 + m.tokens * c.width * (c.width + c.vocabulary) / 4e6),
    "layers": lambda m, c: c.layers + 1,
}
_OWN: dict[str, tuple[str, float]] = {
    "MutualInformation": ("clusters", 0.5),
    "MutualInformationWithoutPosition": ("clusters", 0.3),
    "UsableInformation": ("covariances", 0.6),
    "UsableInformationMLP": ("covariances", 9.5),
    "LayerDistance": ("covariances", 0.3),
    "IdentityNeighbours": ("pairs of states", 0.3),
    "PositionNeighbours": ("pairs of states", 0.1),
    "ContextNeighbours": ("pairs of states", 0.1),
    "TagNeighbours": ("pairs of states", 0.1),
    "TokenMap": ("layers", 0.6),
    "WordNeighbours": ("pairs of states", 0.3),
    "IntrinsicDimension": ("pairs of states", 0.45),
    "Lens": ("updates", 1.2),
    "Entropy": ("attention", 0.085),
    "PositionalScores": ("attention", 0.07),
    "RareTokenScores": ("attention", 0.1),
    "SurfaceStatistics": ("attention", 0.2),
    "SpecialGradient": ("attention", 0.28),
    "EncoderContext": ("attention", 0.56),
    "PatternScores": ("layers", 0.3),
    "HeadDistance": ("pairs of heads", 0.35),
    "HeadLayerDistance": ("pairs of heads", 0.14),
    "AttentionProbe": ("attention", 3.0),
    "Relevance": ("predictions", 20.0),
    "InfluenceByFrequency": ("states", 0.3),
}
"""How a measure's own work grows, and its seconds on `_REFERENCE` beyond the passes; for other classes see `_law`."""


def _passes(measure: AbstractMeasure, counts: Counts) -> float:
    """Passes over the sentences that a measure runs itself; by default, an intervention reads its sentences once."""
    by_default = _share if isinstance(measure, Intervention) else lambda m, c: 0.0
    return _PASSES.get(type(measure).__name__, by_default)(measure, counts)


def _law(measure: AbstractMeasure) -> tuple[str, float]:
    """The entry in `_OWN`; by default, the cost of reading attention, sampled states, or the states once."""
    of_states = 0.6 if isinstance(measure, SampleMeasure) else 0.1
    by_default = ("attention", 0.04) if _reads_attention(measure) else ("states", of_states)
    return _OWN.get(type(measure).__name__, by_default)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """The cost of one measure; `passes` is 0 if it uses only the shared pass."""

    table: str
    texts: int  # texts that are not too long for the measure
    passes: float
    bytes: int
    seconds: float


def _by_default(measure: AbstractMeasure) -> AbstractMeasure:
    """A measure of this class with its default settings."""
    kind: Any = type(measure)
    return kind() if kind.__name__ in (*_OWN, *_PASSES) else measure


def estimates(measures: Sequence[AbstractMeasure], counts: Counts, options: PassOptions) -> list[Estimate]:
    """Estimates for the shared pass and then for each measure."""
    batch = min(options.tokens_per_batch, counts.tokens)
    states = 4 * batch * counts.width * (counts.layers + 1)
    of_text = attention_size(counts.layers * counts.heads, counts.longest)
    weights = min(options.attention_bytes, of_text * batch // counts.longest)
    shared = counts.pass_seconds
    found = [Estimate(table="(one pass, shared)", texts=counts.sentences, passes=1, bytes=states, seconds=shared)]
    if any(map(_reads_attention, measures)):
        seconds = _own_seconds("attention", _ATTENTION, counts)
        found.append(
            Estimate(table="(its attention, shared)", texts=counts.sentences, passes=0, bytes=weights, seconds=seconds)
        )
    for measure in measures:
        name = type(measure).__name__
        if (
            (name in _OF_PREDICTIONS and counts.predicts == "nothing")
            or (measure.regime == "training" and counts.predicts != "masked-lm")
            or (name in _NEEDS and _NEEDS[name] not in counts.columns)
        ):
            continue  # the measure does not apply
        size = weights if _reads_attention(measure) else states
        if isinstance(measure, SampleMeasure):
            size = min(options.sample_bytes, 4 * int(_of_states(measure, counts)))
        elif name in ("SpecialGradient", "Importance"):  # what is kept for a backward pass
            size = 16 * states
        own = replace(counts, lengths=_short_enough(measure, counts, options))
        passes, seconds = _cost(measure, own) if own.sentences else (0.0, _FIXED)
        found.append(Estimate(table=measure.name, texts=own.sentences, passes=passes, bytes=size, seconds=seconds))
    return found


_NEEDS = {"RelationScores": "head", "AttentionProbe": "head", "Coreference": "entity"}
"""By measure, the column of the corpus without which its table is empty."""


def _reads_attention(measure: AbstractMeasure) -> bool:
    return isinstance(measure, Measure) and "attention" in measure.needs


def _short_enough(measure: AbstractMeasure, counts: Counts, options: PassOptions) -> np.ndarray:
    """The lengths of the texts that are not too long for a measure."""
    lengths = counts.lengths
    if type(measure).__name__ in _SCORED:
        lengths = lengths[lengths <= LONGEST_SCORED]
    by_text = _reads_attention(measure) and not isinstance(measure, AttentionByBlocks)
    if by_text or getattr(measure, "whole_attention", False):
        heads = counts.layers * counts.heads
        lengths = lengths[[read_whole(heads, length, options) for length in lengths.tolist()]]
    return lengths


def _cost(measure: AbstractMeasure, counts: Counts) -> tuple[float, float]:
    """A measure's passes, and all its seconds."""
    passes = _passes(measure, counts)
    return passes, _FIXED + passes * counts.pass_seconds + _own_seconds(*_law(measure), counts, measure)


def _own_seconds(law: str, on_reference: float, counts: Counts, measure: AbstractMeasure | None = None) -> float:
    """Seconds of work that grows by a law and takes `on_reference` seconds on `_REFERENCE`."""
    before = measure and _by_default(measure)
    scale = _LAWS[law](measure, counts) / _LAWS[law](before, _REFERENCE)
    return on_reference * scale * (_REFERENCE.rate / counts.rate if law != "layers" else 1)


def estimated(source: str, options: AnalyzeOptions) -> tuple[Counts, int, list[Estimate]]:
    """The counts, the bytes of the weights, and the estimates for an analysis that has not begun."""
    measures = chosen_measures(options, [])
    counts, weights = _counted(
        source, corpus_of(options, [source]), options.tokenizer, options.max_length, options.device
    )
    measures, _ = wanted_at(counts.width, measures, options)
    passes = options.measures.passes(seed=options.seed, max_length=options.max_length)
    return counts, _weight_bytes(counts, weights, options.dtype, options.quantize), estimates(measures, counts, passes)


def _counted(source: str, corpus: Corpus, tokenizer: str | None, max_length: int, device: str) -> tuple[Counts, int]:
    """Counts from a checkpoint's configuration and a corpus, and the number of weights; no weights are read."""
    home = existing(source)
    if isinstance(home, Path) and not (home / "config.json").is_file():
        raise UserError(f"An estimate needs a folder with config.json, or a name on the model hub. Got {home}.")
    module = empty_model(home)
    linear = [child.weight for child in module.modules() if isinstance(child, nn.Linear | Conv1D)]
    config, text = module.config, module.config.get_text_config()
    layers = sum(
        number
        for name in ("num_hidden_layers", "encoder_layers" if config.is_encoder_decoder else "")
        if isinstance(number := getattr(text, name, None), int)
    )
    output = module.get_output_embeddings()
    head = output.weight.numel() if isinstance(output, nn.Linear) else 0
    masked = "MaskedLM" in type(module).__name__ or "PreTraining" in type(module).__name__
    heads, width = getattr(text, "num_attention_heads", 1), getattr(text, "hidden_size", None)
    if not layers or not isinstance(width, int):
        raise UserError(f"The configuration of {source} names no layers or no width, so nothing can be estimated.")
    reader = find_tokenizers(tokenizer, home)[0]
    if reader is None:
        raise UserError(f"{source} has no tokenizer, so its tokens cannot be counted. Name one with --tokenizer.")
    longest = min(max_length, getattr(text, "max_position_embeddings", None) or max_length)
    lengths = corpus.encode(reader, side="text", max_length=longest).lengths.astype(np.int64)
    counts = Counts(
        lengths=lengths, layers=layers, heads=int(heads), width=width, vocabulary=int(getattr(text, "vocab_size", 1)),
        linear=sum(one.numel() for one in linear), head=head,
        predicts="nothing" if output is None else "masked-lm" if masked else "other", columns=tuple(corpus.columns),
        rate=_product_rate(width, device),
    )  # fmt: skip
    return counts, sum(one.numel() for one in module.parameters())


def _weight_bytes(counts: Counts, weights: int, dtype: str, quantize: str) -> int:
    wide = torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    small = counts.linear - counts.head
    return int(wide * (weights - small) + small * _QUANTISED_BYTES.get(quantize, wide))


def _product_rate(width: int, device: str) -> float:
    """Products and sums per second in a feed-forward layer of this width; the best of several runs.

    On a CPU, only the CPU time of this process counts, so that other programs do not matter.
    """
    where = torch.device("cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu"))
    like: dict[str, Any] = {"device": where}
    first, second = nn.Linear(width, 4 * width, **like), nn.Linear(4 * width, width, **like)
    rows, best = torch.randn(_ROWS, width, **like), float("inf")
    clock = time.perf_counter if where.type != "cpu" else lambda: time.process_time() / torch.get_num_threads()
    with torch.inference_mode():
        for _ in range(_REPEATS):
            before = clock()
            second(nn.functional.gelu(first(rows)))[0, 0].item()  # reading a number waits for the GPU
            best = min(best, clock() - before)
    return 16 * _ROWS * width**2 / max(best, 1e-9)
