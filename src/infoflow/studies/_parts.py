"""The parts of a study's corpus (from a split, or published), the rows left out, and leakage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from infoflow.corpus import Corpus, SplitRule, leakage, load_corpus, most_of_document, normalised
from infoflow.foundation import UserError, current_display, hash64_array

from ._plan_sections import CorpusPlan


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Parts:
    """Training, validation and test rows of a study, and how they were chosen."""

    train: Corpus
    validation: Corpus
    test: Corpus
    rule: SplitRule | None  # of the split, as used; None: validation and test parts were published
    left_out: dict[str, dict[str, int]]  # rows in no part: where they were, why, how many

    def facts(self) -> dict[str, Any]:
        """Plain values for `run.json`: the rule, the rows left out, and how much of held-out parts is in training."""
        held_out = {"validation": self.validation, "test": self.test}
        leaks = {name: leakage(part, self.train).to_json() for name, part in held_out.items()}
        return {"rule": self.rule, "left_out": self.left_out, "leakage": leaks}


def cut_up(corpus: Corpus, plan: CorpusPlan, parallel: bool) -> Parts:
    """The training, validation and test parts of the corpus that the plan requests.

    Published parts stay unchanged. Their source sentences are removed from the training part, and those of the test
    part also from the validation part. Other overlap with training stays, as is usual when models are compared on
    published parts, and `Parts.facts` counts it.
    """
    kept = usable(corpus, plan)
    names = {"validation": plan.validation_name, "test": plan.test_name}
    published = {part: like(corpus, read(name, plan), parallel) for part, name in names.items() if name}
    given = {part: usable(whole, plan) for part, whole in published.items()}
    shares = {"validation": plan.validation, "test": plan.test} | dict.fromkeys(given, 0.0)
    split = kept.split(**shares, rule=plan.split)
    validation, test = given.get("validation", split.validation), given.get("test", split.test)
    if validation is None or test is None:
        raise UserError(
            "A study needs a validation and a test part: corpus.validation and corpus.test above 0, or "
            "corpus.validation_name and corpus.test_name."
        )
    train, rest = without(split.train, list(given.values())), without(validation, [test] if "test" in given else [])
    chosen = at_most(train, plan.sentences)
    lengths = f"not of {plan.min_words} to {plan.max_words} words"
    losses = [
        ("corpus", lengths, corpus, kept),
        *((part, lengths, published[part], given[part]) for part in given),
        ("train", "source in a published part", split.train, train),
        ("train", "more than corpus.sentences", train, chosen),
        ("validation", "source in the published test part", validation, rest),
    ]
    return Parts(
        train=chosen,
        validation=rest,
        test=test,
        rule=split.rule if any(shares.values()) else None,
        left_out=_counted(split.left_out, losses),
    )


def _counted(
    by_rule: dict[str, dict[str, int]], losses: Sequence[tuple[str, str, Corpus, Corpus]]
) -> dict[str, dict[str, int]]:
    """Numbers of rows left out by the split and by the other `losses`: (where, why, rows before, rows after)."""
    counts = {part: dict(reasons) for part, reasons in by_rule.items()}
    for origin, reason, before, after in losses:
        if len(before) > len(after):
            counts.setdefault(origin, {})[reason] = len(before) - len(after)
    return counts


def read(name: str, plan: CorpusPlan) -> Corpus:
    """The corpus of this name; a table is read with the plan's columns."""
    return load_corpus(
        name,
        text_column=plan.text_column,
        translation_column=plan.translation_column,
        document_column=plan.document_column,
        documents=plan.documents,
        lines=plan.lines,
    )


def usable(corpus: Corpus, plan: CorpusPlan) -> Corpus:
    usable = corpus.filter_words(plan.min_words, plan.max_words)
    if len(usable) == 0:
        raise UserError(f"{corpus.name} has no sentence of {plan.min_words} to {plan.max_words} words.")
    if corpus.documents is not None and (lost := len(corpus) - len(usable)):
        current_display().note(
            f"{corpus.name}: {lost:,} of {len(corpus):,} sentences are not of {plan.min_words} to {plan.max_words} "
            "words. Documents are interrupted there: raise corpus.max_words to read them completely."
        )
    return usable


def like(corpus: Corpus, part: Corpus, parallel: bool) -> Corpus:
    if parallel and "translation" not in part.columns:
        raise UserError(
            f"{corpus.name} has translations, so the validation and test corpora need them too. {part.name} has none."
        )
    return part


def without(corpus: Corpus, others: Sequence[Corpus]) -> Corpus:
    """Sentences whose source is in no other corpus, without documents of which half the sentences are in another."""
    if not others:
        return corpus
    seen = {normalised(text) for other in others for text in other.column("text")}
    found = np.array([normalised(text) in seen for text in corpus.column("text")])
    if (documents := corpus.documents) is not None:
        found = most_of_document(found, documents)
    if found.all():
        raise UserError(f"Every sentence of {corpus.name} also occurs in another part of the study: none is left.")
    return corpus.select(~found, corpus.name) if found.any() else corpus


def distinct(corpus: Corpus) -> Corpus:
    """One row for each distinct source sentence, ignoring case and spacing, chosen by text and translations.

    A sentence with several translations has several rows, and an encoder gives them equal states. The copies would be
    each other's neighbours and, if counted as independent, would make every interval too narrow.
    """
    chosen: dict[str, int] = {}
    keys, ids = [normalised(text) for text in corpus.column("text")], corpus.content_ids
    for row, key in enumerate(keys):
        if key not in chosen or ids[row] < ids[chosen[key]]:
            chosen[key] = row
    rows = np.sort(np.array(list(chosen.values())))
    return corpus if len(rows) == len(corpus) else corpus.select(rows, corpus.name)


def at_most(corpus: Corpus, sentences: int) -> Corpus:
    """A subset chosen by the hash of the text, in corpus order; for documents, as many whole documents as fit.

    If even the first document does not fit, it is truncated.
    """
    if not sentences or sentences >= len(corpus):
        return corpus
    if corpus.documents is not None:
        return corpus.select(_whole_documents(corpus, sentences))
    return corpus.select(np.sort(np.argsort(hash64_array(("study-subset",), corpus.content_ids))[:sentences]))


def _whole_documents(corpus: Corpus, sentences: int) -> np.ndarray:
    """Rows of the first documents, ordered by a hash of their text, with at most `sentences` sentences."""
    documents = corpus.require_documents()
    order = np.lexsort((np.arange(len(corpus)), documents, hash64_array(("study-subset",), corpus.document_ids)))
    last = np.flatnonzero(np.diff(documents[order], append=documents.max() + 1))  # last row of each document
    fitting = last[last < sentences]
    return np.sort(order[: fitting[-1] + 1 if len(fitting) else sentences])
