"""The sentences of a study: filtered, split by source sentence, with tokenizers trained on the training part."""

import dataclasses
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from infoflow.corpus import Corpus, load_corpus, load_tokenizer, train_tokenizer
from infoflow.foundation import UserError, atomic_folder, current_display, digest, hash64_array
from infoflow.objectives import Vocabulary
from infoflow.training import TrainingData

from ._plan import CorpusPlan, StudyPlan

_VERSION = 1  # raise when the same plan gives other data


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StudyData:
    """What every model of a study trains on and is measured on."""

    train: Corpus
    validation: Corpus
    test: Corpus  # pairs: a source with several translations is there several times
    analysed: Corpus  # one row of `test` per different source: what models are scored and measured on
    other_domain: Corpus | None  # one row per different source, none of them of the study; None: the plan names none
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None  # None: the corpus has no translations
    key: str

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self.tokenizer)

    @property
    def target_vocabulary(self) -> Vocabulary | None:
        return None if self.target_tokenizer is None else Vocabulary.from_tokenizer(self.target_tokenizer)

    def encoded(self, part: Corpus, positions: int) -> TrainingData:
        """A part as token ids, sentences cut at `positions` tokens."""
        target = None
        if self.target_tokenizer is not None:
            target = part.encode(self.target_tokenizer, side="translation", max_length=positions)
        return TrainingData(
            source=part.encode(self.tokenizer, max_length=positions),
            vocabulary=self.vocabulary,
            target=target,
            target_vocabulary=self.target_vocabulary,
            tokenizer=self.tokenizer,
            target_tokenizer=self.target_tokenizer,
        )


def encode_all(data: StudyData, positions: int) -> None:
    """Encode every part into the cache before several processes ask for it at once."""
    for part in (data.train, data.validation, data.analysed):
        data.encoded(part, positions)


def prepare(plan: StudyPlan, folder: Path) -> StudyData:
    """Load, filter and split the corpus; train its tokenizers once, into `folder`.

    Raises:
        UserError: The corpus is too small, or an objective needs translations and it has none.
    """
    corpus = load_corpus(plan.corpus.name)
    parallel = "translation" in corpus.columns
    if not parallel and any(plan.objective(name).needs_translation for name in plan.objectives):
        raise UserError(
            f"translation needs a parallel corpus. {corpus.name} has none.\n"
            'Choose another [corpus] name, or leave "translation" out of objectives.'
        )
    train, validation, test = _parts(corpus, plan.corpus, parallel)
    key = digest([_VERSION, corpus.digest, _settings(plan.corpus, validation, test)])
    tokenizers = folder / f"tokenizers-{key}"
    if not tokenizers.exists():
        _train_tokenizers(train, plan.corpus, parallel, tokenizers)
    return StudyData(
        train=train,
        validation=validation,
        test=test,
        analysed=at_most(distinct(test), plan.analysis.sentences),
        other_domain=_other_domain(corpus, [train, validation, test], plan.corpus, parallel),
        tokenizer=load_tokenizer(tokenizers / "source"),
        target_tokenizer=load_tokenizer(tokenizers / "target") if parallel else None,
        key=key,
    )


def _parts(corpus: Corpus, plan: CorpusPlan, parallel: bool) -> tuple[Corpus, Corpus, Corpus]:
    usable = _usable(corpus, plan)
    given = {
        part: _usable(_like(corpus, load_corpus(name), parallel), plan)
        for part, name in (("validation", plan.validation_name), ("test", plan.test_name))
        if name
    }
    shares = {"validation": plan.validation, "test": plan.test} | dict.fromkeys(given, 0.0)
    parts = usable.split(**shares, rule=plan.split)
    validation, test = given.get("validation", parts.validation), given.get("test", parts.test)
    if validation is None or test is None:
        raise UserError(
            "A study needs a validation and a test part: corpus.validation and corpus.test above 0, or "
            "corpus.validation_name and corpus.test_name."
        )
    train = _without(parts.train, list(given.values()))
    return at_most(train, plan.sentences), _without(validation, [given["test"]] if "test" in given else []), test


def _other_domain(corpus: Corpus, parts: Sequence[Corpus], plan: CorpusPlan, parallel: bool) -> Corpus | None:
    if not plan.transfer_name:
        return None
    other = _usable(_like(corpus, load_corpus(plan.transfer_name), parallel), plan)
    return distinct(_without(other, parts))


def _usable(corpus: Corpus, plan: CorpusPlan) -> Corpus:
    usable = corpus.filter_words(plan.min_words, plan.max_words)
    if len(usable) == 0:
        raise UserError(f"{corpus.name} has no sentence of {plan.min_words} to {plan.max_words} words.")
    return usable


def _like(corpus: Corpus, part: Corpus, parallel: bool) -> Corpus:
    if parallel and "translation" not in part.columns:
        raise UserError(f"{corpus.name} has translations, so its other parts need them too. {part.name} has none.")
    return part


def _without(corpus: Corpus, others: Sequence[Corpus]) -> Corpus:
    """The sentences whose source is in none of the others."""
    if not others:
        return corpus
    seen = {_key(text) for other in others for text in other.column("text")}
    rows = [row for row, text in enumerate(corpus.column("text")) if _key(text) not in seen]
    if not rows:
        raise UserError(f"Every sentence of {corpus.name} is in another part of the study too: none is left.")
    return corpus if len(rows) == len(corpus) else corpus.select(np.array(rows), corpus.name)


def _settings(plan: CorpusPlan, validation: Corpus, test: Corpus) -> dict[str, Any]:
    """What of the plan the data depends on: published parts by their content, left out where there are none."""
    settings = dataclasses.asdict(plan)
    del settings["transfer_name"]  # nothing is trained on it
    if plan.split == "source" or (plan.validation_name and plan.test_name):
        del settings["split"]  # the data of versions that had no other rule
    for name, part in (("validation_name", validation), ("test_name", test)):
        if settings.pop(name):
            settings[name] = part.digest
    return settings


def distinct(corpus: Corpus) -> Corpus:
    """One row of each source sentence, without regard to case and spacing, that its text and translations decide.

    A sentence with several translations is there several times, and an encoder gives the copies the same states: as
    neighbours they would find each other, and as independent observations they would narrow every interval.
    """
    chosen: dict[str, int] = {}
    keys, ids = [_key(text) for text in corpus.column("text")], corpus.content_ids
    for row, key in enumerate(keys):
        if key not in chosen or ids[row] < ids[chosen[key]]:
            chosen[key] = row
    rows = np.sort(np.array(list(chosen.values())))
    return corpus if len(rows) == len(corpus) else corpus.select(rows, corpus.name)


def _key(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())  # as `Corpus.split` sees a sentence


def at_most(corpus: Corpus, sentences: int) -> Corpus:
    """A subset chosen by the hash of the text, in corpus order."""
    if not sentences or sentences >= len(corpus):
        return corpus
    return corpus.select(np.sort(np.argsort(hash64_array(("study-subset",), corpus.content_ids))[:sentences]))


def _train_tokenizers(train: Corpus, plan: CorpusPlan, parallel: bool, out: Path) -> None:
    with atomic_folder(out) as folder:
        sides = {"source": "text", "target": "translation"} if parallel else {"source": "text"}
        for name, column in sides.items():
            current_display().note(f"Training a tokenizer of {plan.vocabulary} subwords for the {name} sentences.")
            tokenizer = train_tokenizer(train.column(column), plan.vocabulary, lowercase=plan.lowercase)
            tokenizer.save_pretrained(folder / name)
