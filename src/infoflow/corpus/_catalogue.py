"""Data for `infoflow data`: the available corpora, the content of one, and the leakage between its parts."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import compress
from typing import Any

import numpy as np

from infoflow.foundation import UserError, running_words

from ._abstract_sentences import tag_columns
from ._corpus import Corpus
from ._documents import nearly_repeats, normalised, repeats
from ._fact_language import FactConfig
from ._fact_world import FactWorld, num_language, num_queries
from ._lines import printable
from ._load import FACTS, GRAMMAR, GRAMMAR_SENTENCES, TATOEBA, tatoeba_folder
from ._split import SPLIT_RULES, SplitRule, split_numbers

Texts = Callable[[], Iterable[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Leakage:
    """Shares of the rows of a held-out part that also occur in training; None for targets if there are none."""

    sources: float  # rows whose source occurs in training
    targets: float | None  # rows whose target occurs in training
    near_sources: float  # rows whose source has a near duplicate in training
    near_targets: float | None

    def to_json(self) -> dict[str, float]:
        """The shares that are not None."""
        return {name: share for name, share in asdict(self).items() if share is not None}


def leakage(held_out: Corpus, train: Corpus) -> Leakage:
    """How much of `held_out` occurs in `train`; `Corpus.split` defines equal and near."""
    sides = [name for name in ("text", "translation") if name in held_out.columns & train.columns]
    columns = [(partial(held_out.column, side), partial(train.column, side)) for side in sides]
    shares = [[float(_occurring(*each, found).mean()) for each in columns] for found in (repeats, nearly_repeats)]
    equal, near = ([*values, None][:2] for values in shares)
    assert equal[0] is not None
    assert near[0] is not None
    return Leakage(sources=equal[0], targets=equal[1], near_sources=near[0], near_targets=near[1])


def repeated(texts: Iterable[str], others: Texts) -> tuple[int, int, int]:
    """The number of distinct texts, and how many of them occur in `others`, exactly or nearly.

    `Corpus.split` explains exact and near repetitions. `others` is called for each search: it streams the texts.
    """
    distinct = list({normalised(text): text for text in texts}.values())
    equal, near = (int(_occurring(lambda: distinct, others, found).sum()) for found in (repeats, nearly_repeats))
    return len(distinct), equal, near


def _occurring(texts: Texts, others: Texts, found: Callable[[Iterable[str], Iterable[str]], np.ndarray]) -> np.ndarray:
    """Which texts occur in `others`; only those of `others` that occur in the texts are held in memory."""
    return found(texts(), compress(others(), found(others(), texts())))


_SHARES = {"validation": 0.02, "test": 0.10}  # of `CorpusPlan`


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogueEntry:
    """A built-in corpus."""

    name: str
    description: str
    sentences: int
    licence: str
    location: str  # folder of its unpacked files; empty for a generated corpus


def list_corpora() -> list[CatalogueEntry]:
    """The built-in corpora."""
    world = FactWorld(FactConfig(), 0)
    return [
        CatalogueEntry(
            name=TATOEBA,
            description="real English sentences with French translations",
            sentences=178_009,
            licence="CC-BY 2.0 FR, attribution: tatoeba.org and the contributors named in its file",
            location=str(tatoeba_folder()),
        ),
        CatalogueEntry(
            name=GRAMMAR,
            description="generated sentences with gold trees, tags, categories and translation (grammar:SIZE)",
            sentences=GRAMMAR_SENTENCES,
            licence="none needed",
            location="",
        ),
        CatalogueEntry(
            name=FACTS,
            description="generated facts as sentences, for storage and retrieval (facts:ENTITIES)",
            sentences=num_queries(world) + num_language(world, num_queries(world)),
            licence="none needed",
            location="",
        ),
    ]


_KNOWN = {TATOEBA: {"language": ["en", "fr"], "license": "cc-by-2.0"}}


def card_facts(name: str) -> dict[str, Any]:
    """Metadata, in the model hub's terms, about the text of a corpus that `load_corpus` accepts by this name.

    Keys are `language` (of the text, then of the translation), `license` and `datasets`; unknown keys are absent. The
    generated corpora have none, because they are in no natural language and need no licence.
    """
    if name.startswith("hf:"):
        return {"datasets": [name.removeprefix("hf:").partition(":")[0]]}
    return _KNOWN.get(name, {})


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitDescription:
    """The result of a split rule on a corpus, with a study's shares (2% validation, 10% test, seed 0)."""

    rule: SplitRule
    used: SplitRule  # a weaker rule if the requested one would leave too little
    train: int
    validation: int
    test: int
    left_out: dict[str, dict[str, int]]  # rows in no part: their original part, reason, number
    leakage: Leakage  # of the test part


@dataclass(frozen=True, kw_only=True, slots=True)
class CorpusDescription:
    """A corpus in numbers, and its first sentences; all text is printable."""

    name: str
    digest: str
    sentences: int
    distinct_sources: int  # ignoring case and spacing; `split` keeps equal ones together
    documents: int | None  # None: the corpus has none
    sentences_per_document: float | None  # mean
    words: int
    distinct_words: int
    words_per_sentence: dict[str, float]  # mean, and percentiles 5, 50, 95 and 100
    columns: tuple[str, ...]
    tag_counts: dict[str, dict[str, int]]  # the ten most frequent tags of each tag column
    splits: tuple[SplitDescription, ...]  # by the weakest rule and the default; empty: too few sentences
    examples: tuple[dict[str, str], ...]


def describe_corpus(corpus: Corpus, examples: int = 3) -> CorpusDescription:
    """Statistics of a corpus, its splits by the weakest and the strictest rule, and its first `examples` sentences."""
    lengths, words = corpus.word_counts, _word_types(corpus)
    documents = None if corpus.documents is None else len(np.unique(corpus.documents))
    percentiles = {f"{share}%": float(np.percentile(lengths, share)) for share in (5, 50, 95, 100)}
    return CorpusDescription(
        name=printable(corpus.name),
        digest=corpus.digest,
        sentences=len(corpus),
        distinct_sources=len(np.unique(split_numbers(corpus.column("text"), 0))),
        documents=documents,
        sentences_per_document=None if documents is None else len(corpus) / documents,
        words=int(lengths.sum()),
        distinct_words=len(words),
        words_per_sentence={"mean": float(lengths.mean()), **percentiles},
        columns=tuple(sorted(corpus.columns)),
        tag_counts={name: _tag_counts(corpus, name) for name in tag_columns(corpus)},
        splits=_splits(corpus),
        examples=tuple(_example(corpus, index) for index in range(min(examples, len(corpus)))),
    )


def _splits(corpus: Corpus) -> tuple[SplitDescription, ...]:
    try:
        return tuple(_split(corpus, rule) for rule in (SPLIT_RULES[-1], SPLIT_RULES[0]))
    except UserError:  # too few sentences for three parts
        return ()


def _split(corpus: Corpus, rule: SplitRule) -> SplitDescription:
    split = corpus.split(**_SHARES, rule=rule)
    assert split.validation is not None
    assert split.test is not None
    return SplitDescription(
        rule=rule,
        used=split.rule,
        train=len(split.train),
        validation=len(split.validation),
        test=len(split.test),
        left_out=split.left_out,
        leakage=leakage(split.test, split.train),
    )


def _word_types(corpus: Corpus) -> set[str]:
    if "words" in corpus.columns:
        return {word for words in corpus.column("words") for word in words}
    return {word for text in corpus.column("text") for word in running_words(text)}


def _tag_counts(corpus: Corpus, name: str) -> dict[str, int]:
    counts = Counter(tag for tags in corpus.column(name) for tag in tags)
    return {printable(tag): count for tag, count in counts.most_common(10)}


def _example(corpus: Corpus, index: int) -> dict[str, str]:
    sentence = corpus[index]
    shown: dict[str, Any] = {
        name: getattr(sentence, name) for name in ("text", "bad", "label", "translation", "words", "upos")
    }
    shown |= {"head": sentence.head, "deprel": sentence.deprel, **sentence.tags}
    return {
        name: printable(value if isinstance(value, str) else " ".join(str(item) or "_" for item in value))
        for name, value in shown.items()
        if value is not None
    }
