"""What a translation model has learned: its target language, the words, their order."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from sacrebleu.metrics.chrf import CHRF

from infoflow.corpus import Corpus
from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, hash64_array, replicate_weights, stream
from infoflow.heads import SentenceScorer
from infoflow.models import BleuStatistics, Model, as_model_writes, bleu_by_block, start_token_id, translate
from infoflow.results import Column, TableSchema, estimate, estimate_columns, ratio_estimate

from ._ngrams import NO_TOKEN, NgramModel, WordAligner, words_of
from ._source_contribution import Reordering, fuzzy_reordering
from ._token_losses import counted_ngrams

_ORDERS = (2, 3, 4, 5)
_BINS = ((1, 10), (11, 100), (101, 1000), (1001, None))
_NO_ORDER = -1

TRANSLATION_STAGES = TableSchema(
    name="translation_stages",
    version=2,
    description="Properties of greedy translations of some sentences: as text of the target language, word by "
    "word, and in word order.",
    light=True,
    columns=(
        Column(
            "measure",
            "string",
            "",
            "lm_score: mean log-probability of an output token under an n-gram model of the training corpus's "
            "translations minus that of the references' tokens; bleu (corpus, lower-cased; tokenizer 13a, zh or char "
            "for scripts without spaces), chrf (mean over sentences); unigram_precision: share of output words that "
            "are in the reference, by their frequency; word_by_word: share that are in the word-by-word translation; "
            "frs_a, frs_b, tau_share: how monotone, see fuzzy_reordering; degenerate: share of outputs that are empty "
            "or one repeated word, left out of those three, as are outputs with fewer than two aligned words",
        ),
        Column("n", "int64", "tokens", "order of the n-gram model (lm_score); else -1"),
        Column(
            "rank_bin",
            "string",
            "",
            "frequency ranks of the words in the training corpus's translations (unigram_precision); else empty",
        ),
        *estimate_columns(
            "nats per token (lm_score), percent (bleu, chrf), otherwise a share of 1",
            "the measure",
            "lm_score: tokens drawn by their frequency alone in place of the output; frs_a, frs_b, tau_share: the same "
            "words in random order; degenerate: share of such references; others: the output of another sentence",
            "sentences (bleu, chrf, degenerate, frs_a, frs_b, tau_share), tokens (lm_score), otherwise words",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Translated:
    """Sentences with their references and outputs, as words."""

    sources: list[list[str]]
    references: list[list[str]]
    outputs: list[list[str]]
    sentence_ids: np.ndarray

    @property
    def blocks(self) -> np.ndarray:
        return block_of(self.sentence_ids)


_LEXICONS: dict[Hashable, tuple[WordAligner, dict[str, int]]] = {}
_HELD = 2


class TranslationStages(Intervention):
    r"""Stages of learning to translate: the target language, then the words, then their order [@voita2021language].

    Greedy translations of a fixed sample. n-gram models (`NgramModel`), frequency ranks and one word aligner
    (`WordAligner`, fitted once) come from the training corpus that the caller names, else from the measured one; the
    model's attention is never used.

    Args:
        sentences: Number of sentences, chosen by a hash of their text: the same at every checkpoint.
        pairs: Maximum number of sentence pairs for fitting the aligner; chosen the same way.
    """

    table: ClassVar[TableSchema] = TRANSLATION_STAGES

    def __init__(self, sentences: int = 500, pairs: int = 20_000) -> None:
        if sentences < 1 or pairs < 1:
            raise UserError(f"sentences and pairs must be at least 1. Got {sentences} and {pairs}.")
        self.sentences, self.pairs = sentences, pairs

    def refusal(self, model: Model) -> str | None:
        return None if model.task == "seq2seq" else f"it does not translate: it is a {model.task} model"

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        if not reader.has_target or reader.decoder_side == "text":
            raise NothingToRead(f"{reader.model.name} does not translate {reader.corpus.name}")
        rows = SentenceScorer(reader).choose(self.sentences, "translation-stages")
        sentences = [reader.corpus[int(row)] for row in rows]
        references = as_model_writes(reader.model, [str(one.translation) for one in sentences])
        outputs = translate(reader.model, [one.text for one in sentences], beams=1)
        ids = reader.corpus.content_ids[rows]
        aligner, ranks = _lexicon(reader.counted, self.pairs, reader.seed)
        words = Translated(
            sources=[words_of(one.text) for one in sentences],
            references=[words_of(text) for text in references],
            outputs=[words_of(text) for text in outputs],
            sentence_ids=ids,
        )
        found = [
            *_lm_rows(reader, outputs, references, words.blocks),
            *_similarity_rows(outputs, references, words.blocks),
            *word_rows(words, aligner, ranks),
            *order_rows(words, aligner, reader.seed),
        ]
        blank = {"n": _NO_ORDER, "rank_bin": ""}
        return pd.DataFrame([blank | row for row in found], columns=self.table.column_names)


def _lexicon(corpus: Corpus, pairs: int, seed: int) -> tuple[WordAligner, dict[str, int]]:
    """The aligner and the frequency rank of each target word, learned from the training pairs once."""
    key = (corpus.digest, pairs, seed)
    if key not in _LEXICONS:
        while len(_LEXICONS) >= _HELD:
            del _LEXICONS[next(iter(_LEXICONS))]
        order = np.argsort(hash64_array(("aligner-pairs", seed), corpus.content_ids), kind="stable")
        chosen = [corpus[int(row)] for row in order[:pairs]]
        words = [(words_of(one.text), words_of(str(one.translation))) for one in chosen]
        counts = Counter(word for _, target in words for word in target)
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        ranks = {word: rank for rank, word in enumerate(ranked, 1)}
        _LEXICONS[key] = WordAligner(words), ranks
    return _LEXICONS[key]


# -- as text of the target language -----------------------------------------------------------------------------------


def _lm_rows(
    reader: Reader, outputs: Sequence[str], references: Sequence[str], blocks: np.ndarray
) -> list[dict[str, Any]]:
    tokenizer, start = reader.tokenizer("decoder"), start_token_id(reader.model)
    size = max(len(tokenizer), max(tokenizer.get_vocab().values()) + 1)
    counts = counted_ngrams(reader, max(_ORDERS), size)
    written, known = (
        [_after_start(tokenizer(text_target=text)["input_ids"], start) for text in texts]
        for texts in (outputs, references)
    )
    lengths = [max(len(ids) - 1, 1) for ids in known]
    generator = stream("translation-stages", reader.seed)
    drawn = counts.sample(1, lengths, generator, never=tokenizer.all_special_ids)
    drawn = [[*one.tolist(), *ids[-1:]] for one, ids in zip(drawn, known, strict=True)]
    rows = []
    for order in _ORDERS:
        of_output, of_reference, of_drawn = (
            log_scores(counts, texts, start, order, blocks) for texts in (written, known, drawn)
        )
        values = _ratio(of_output) - _ratio(of_reference)
        baseline = float((_ratio(of_drawn) - _ratio(of_reference))[0])
        numbers = estimate(float(values[0]), values[1:], baseline, int(of_output[1].sum()))
        rows.append({"measure": "lm_score", "n": order, **numbers})
    return rows


def _after_start(ids: Sequence[int], start: int) -> list[int]:
    """The tokens of a target that a decoder predicts."""
    return list(ids[1:] if len(ids) > 1 and ids[0] == start else ids)


def log_scores(
    counts: NgramModel, texts: Sequence[Sequence[int]], start: int, order: int, blocks: np.ndarray
) -> Float[np.ndarray, "2 block"]:
    """Sums of the log-probabilities of the texts' tokens, and numbers of tokens, per bootstrap block."""
    tokens = np.array([token for text in texts for token in text], dtype=np.int64)
    before = [
        [*reversed([start, *text][max(0, index - order + 2) : index + 1]), *[NO_TOKEN] * order][: order - 1]
        for text in texts
        for index in range(len(text))
    ]
    logs = np.log(counts.chances(tokens, np.array(before, dtype=np.int64).reshape(len(tokens), order - 1), order))
    of_tokens = np.repeat(blocks, [len(text) for text in texts])
    return np.stack([np.bincount(of_tokens, weights, NUM_BLOCKS) for weights in (logs, np.ones(len(tokens)))])


def _ratio(sums: Float[np.ndarray, "2 block"]) -> Float[np.ndarray, " row"]:
    """The ratio of the two sums: the estimate, then its bootstrap replicates."""
    weights_RK = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    with np.errstate(invalid="ignore", divide="ignore"):
        return (weights_RK @ sums[0]) / (weights_RK @ sums[1])


# -- as translations ---------------------------------------------------------------------------------------------------


def _similarity_rows(outputs: list[str], references: list[str], blocks: np.ndarray) -> list[dict[str, Any]]:
    other = [*outputs[1:], *outputs[:1]]
    values, control = (_bleu(texts, references, blocks) for texts in (outputs, other))
    bleu = estimate(float(values[0]), values[1:], float(control[0]), len(outputs), scale="percent")
    metric = CHRF()
    scores, control = (
        np.array(
            [metric.sentence_score(text, [reference]).score for text, reference in zip(each, references, strict=True)]
        )
        for each in (outputs, other)
    )
    ones = np.ones(len(scores))
    return [
        {"measure": "bleu", **bleu},
        {"measure": "chrf", **_mean(scores, ones, control, ones, blocks, scale="percent")},
    ]


def _bleu(outputs: list[str], references: list[str], blocks: np.ndarray) -> Float[np.ndarray, " row"]:
    """Corpus BLEU: the estimate, then its bootstrap replicates."""
    sums = np.zeros((NUM_BLOCKS, 10))
    for block, found in bleu_by_block(outputs, [[one] for one in references], blocks).items():
        sums[block] = found.counts
    weights_RK = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    return np.array([BleuStatistics.of(row).score for row in weights_RK @ sums])


def _mean(
    values: np.ndarray, counts: np.ndarray, control: np.ndarray, of_control: np.ndarray, blocks: np.ndarray, scale: Any
) -> dict[str, Any]:
    baseline = float(control.sum() / of_control.sum()) if of_control.sum() else float("nan")
    sums = [np.bincount(blocks, np.asarray(each, dtype=np.float64), NUM_BLOCKS) for each in (values, counts)]
    return ratio_estimate(sums[0], sums[1], baseline, scale=scale)


def word_rows(words: Translated, aligner: WordAligner, ranks: dict[str, int]) -> list[dict[str, Any]]:
    """Words in the reference, by frequency, and in the word-by-word translation."""
    rows: list[dict[str, Any]] = []
    shifted = [*words.outputs[1:], *words.outputs[:1]]
    for least, most in _BINS:

        def within(word: str, least: int = least, most: int | None = most) -> bool:
            rank = ranks.get(word, _BINS[-1][0])  # never seen: as rare as the rarest
            return rank >= least and (most is None or rank <= most)

        found = [matched(outputs, words.references, within) for outputs in (words.outputs, shifted)]
        if found[0][1].sum():
            numbers = _mean(*found[0], *found[1], words.blocks, scale="share")
            rows.append({"measure": "unigram_precision", "rank_bin": f"{least}-{most or ''}", **numbers})
    lexical = [aligner.word_by_word(source) for source in words.sources]
    found = [matched(outputs, lexical, lambda word: True) for outputs in (words.outputs, shifted)]
    if found[0][1].sum():
        rows.append({"measure": "word_by_word", **_mean(*found[0], *found[1], words.blocks, scale="share")})
    return rows


def matched(
    outputs: Sequence[Sequence[str]], references: Sequence[Sequence[str]], within: Callable[[str], bool]
) -> tuple[Float[np.ndarray, " sentence"], Float[np.ndarray, " sentence"]]:
    """For each sentence: output words of a kind that match the reference (with multiplicity), and all of them."""
    hits, totals = [], []
    for output, reference in zip(outputs, references, strict=True):
        there, written = Counter(reference), Counter(word for word in output if within(word))
        hits.append(sum(min(number, there[word]) for word, number in written.items()))
        totals.append(sum(written.values()))
    return np.array(hits, dtype=np.float64), np.array(totals, dtype=np.float64)


# -- in their order ----------------------------------------------------------------------------------------------------


def order_rows(words: Translated, aligner: WordAligner, seed: int) -> list[dict[str, Any]]:
    """How monotone the outputs are, and how many are degenerate."""
    found: dict[str, list[list[float]]] = {name: [] for name in ("frs_a", "frs_b", "tau_share")}
    kept: list[int] = []
    for row, (source, output) in enumerate(zip(words.sources, words.outputs, strict=True)):
        places = aligner.align(source, output)
        places = places[places >= 0]
        if is_degenerate(output) or len(places) < 2:
            continue
        kept.append(row)
        mixed = stream("random-order", seed, int(words.sentence_ids[row])).permutation(places)
        both: list[Reordering] = [fuzzy_reordering(places), fuzzy_reordering(mixed)]
        for name, values in found.items():
            values.append([getattr(one, name) for one in both])
    blocks, rows = words.blocks, []
    for name, values in found.items() if kept else ():
        own, control = np.array(values).T
        ones = np.ones(len(own))
        rows.append({"measure": name, **_mean(own, ones, control, ones, blocks[kept], scale="share")})
    empty, control = (
        np.array([float(is_degenerate(text)) for text in texts]) for texts in (words.outputs, words.references)
    )
    ones = np.ones(len(empty))
    return [*rows, {"measure": "degenerate", **_mean(empty, ones, control, ones, blocks, scale="share")}]


def is_degenerate(output: Sequence[str]) -> bool:
    """Whether an output is empty, or repeats one word."""
    return not output or (len(output) > 1 and len(set(output)) == 1)
