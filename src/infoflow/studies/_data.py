"""The sentences of a study, split into parts, with tokenizers trained on the training part."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from infoflow import corpus
from infoflow._subjects import provided
from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import SilentDisplay, UserError, current_display, digest, kept, use_display
from infoflow.objectives import AbstractObjective, AbstractPairObjective, Reads, Vocabulary
from infoflow.training import ExampleRows, PairRows, TokenRows, TrainingData, WindowRows

from ._parts import Parts, at_most, cut_up, distinct, like, read, usable, without
from ._plan import StudyPlan
from ._plan_sections import CorpusPlan

_VERSION = 1  # to be increased when the same plan yields other data
_WHOLE_SENTENCE = 512  # tokens, the limit of `Corpus.encode`


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StudyData:
    """The data on which every model of a study is trained and measured."""

    train: corpus.Corpus
    validation: corpus.Corpus
    test: corpus.Corpus  # sentence pairs, so a source occurs once for each of its translations
    analysed: corpus.Corpus  # one row of `test` for each distinct source, for scoring and measuring models
    other_domain: (
        corpus.Corpus | None
    )  # one row for each distinct source that is not in the study; None: the plan names no such corpus
    further: Mapping[str, corpus.Corpus | None]  # sentences of subjects by name; None: the plan needs none
    tokenizer: PreTrainedTokenizerBase
    target_tokenizer: PreTrainedTokenizerBase | None  # None: the corpus has no translations
    counted: bool  # whether an objective draws tokens by their frequency in training
    card: Mapping[str, Any]  # what is known about the text, for the cards of models
    parts: Parts  # how train, validation and test were split, and which rows are in none of them
    key: str

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.from_tokenizer(self.tokenizer)

    @property
    def target_vocabulary(self) -> Vocabulary | None:
        return None if self.target_tokenizer is None else Vocabulary.from_tokenizer(self.target_tokenizer)

    def encoded(self, part: corpus.Corpus, positions: int) -> TrainingData:
        """A part as token ids, with sentences cut to `positions` tokens; a part may lack translations."""
        data = self._of(part.encode(self.tokenizer, max_length=positions), positions)
        if self.target_tokenizer is None or "translation" not in part.columns:
            return data
        return dataclasses.replace(
            data,
            target=part.encode(self.target_tokenizer, side="translation", max_length=positions),
            target_vocabulary=self.target_vocabulary,
            target_tokenizer=self.target_tokenizer,
        )

    def arranged(
        self, part: corpus.Corpus, positions: int, objective: AbstractObjective, reads: Reads, copies: int = 1
    ) -> TrainingData:
        """A part in the form that an objective reads: sentences, windows, or `copies` passes of pairs.

        Raises:
            UserError: The objective reads windows or pairs but the corpus has no documents, or its prefix is too long.
        """
        if reads == "pair":
            assert isinstance(objective, AbstractPairObjective)
            return self.pairs(part, positions, objective.pairs, copies=copies)
        if reads == "window":
            return self.windows(part, positions)
        prefix = objective.added_tokens(self.vocabulary)
        if prefix > positions - 3:
            raise UserError(
                f"The longest prefix of {objective.name} has {prefix} tokens and leaves no room for a text. "
                f"Got model.positions = {positions}: raise it, or use shorter prefixes."
            )
        return self.encoded(part, positions - prefix)

    def windows(self, part: corpus.Corpus, positions: int, budget: int = 0) -> TrainingData:
        """A part as windows of consecutive sentences with at most `budget` tokens (0: `positions`).

        Raises:
            UserError: The corpus has no documents, or the budget does not fit.
        """
        budget = _fitting(budget or positions, positions, "A window")
        documents = part.require_documents("A window")
        source = part.encode(self.tokenizer, max_length=positions)
        return self._of(WindowRows(source, documents, budget, self.vocabulary), positions)

    def pairs(
        self,
        part: corpus.Corpus,
        positions: int,
        kind: corpus.PairKind = "next",
        *,
        max_tokens: int = 0,
        seed: int = 0,
        copies: int = 10,
        short_share: float = 0.1,
        lone: corpus.Lone = "skip",
    ) -> TrainingData:
        """A part as pairs of segments with at most `max_tokens` tokens (0: `positions`); see `segment_pairs`.

        Raises:
            UserError: The corpus has no documents, or only one where several are needed, or the length does not fit.
        """
        max_tokens = _fitting(max_tokens or positions, positions, "A pair of segments")
        documents = part.require_documents("A pair of segments")
        whole = max(positions, _WHOLE_SENTENCE)  # pairs are truncated at both ends, so sentences are not cut before
        source = part.encode(self.tokenizer, max_length=whole)
        rows = PairRows(
            source,
            documents,
            max_tokens,
            self.vocabulary,
            kind=kind,
            seed=seed,
            copies=copies,
            short_share=short_share,
            lone=lone,
            key=digest([part.digest, corpus.tokenizer_digest(self.tokenizer), whole]),
        )
        return self._of(rows, positions)

    def _of(self, rows: TokenRows | ExampleRows, positions: int) -> TrainingData:
        vocabulary = self._counted(positions) if self.counted else self.vocabulary
        return TrainingData(source=rows, vocabulary=vocabulary, tokenizer=self.tokenizer, card=self.card)

    def _counted(self, positions: int) -> Vocabulary:
        vocabulary = self.vocabulary
        with use_display(SilentDisplay()):  # cut sentences are reported where they are read
            encoded = self.train.encode(self.tokenizer, max_length=positions)
        return vocabulary.with_counts(corpus.token_frequencies(encoded, vocabulary.size))


def _fitting(length: int, positions: int, what: str) -> int:
    if length > positions:
        raise UserError(
            f"The length of {what[:1].lower()}{what[1:]} must be at most the model's positions, {positions}. "
            f"Got {length}.\n"
            "Raise model.positions, or lower the length."
        )
    return length


class Sentences(NamedTuple):
    """Sentences that a subject (a package in `infoflow.subjects`) adds to the data of a study."""

    settings: Callable[[StudyPlan], list[Any]]  # settings that they depend on, besides the corpus; empty: none needed
    read: Callable[[StudyPlan, corpus.Corpus], corpus.Corpus | None]  # from the plan and the analysed sentences


def further_sentences() -> dict[str, Sentences]:
    """The sentences that subjects add, by name."""
    return {name: own for added in provided("stages", "SENTENCES") for name, own in added.items()}


Tokenizers = tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase | None]
"""The tokenizers of the source and, if there is one, of the target."""


def prepare(plan: StudyPlan, folder: Path, given: Callable[[corpus.Corpus], Tokenizers] | None = None) -> StudyData:
    """Load, filter and split the corpus, and train its tokenizers once, into `folder`.

    If `given` is set, no tokenizers are trained: it maps the training part to existing ones, of which the target's is
    dropped if the corpus has no translations.
    """
    text = read(plan.corpus.name, plan.corpus)
    parallel = "translation" in text.columns
    if not parallel and any(plan.objective(name).needs_translation for name in plan.objectives):
        raise UserError(
            f"translation needs a parallel corpus. {text.name} has none.\n"
            'Choose another [corpus] name, or leave "translation" out of objectives.'
        )
    if not parallel and plan.corpus.joint_vocabulary:
        raise UserError(
            f"corpus.joint_vocabulary needs a parallel corpus. {text.name} has no translations.\n"
            "Choose a parallel corpus, or leave joint_vocabulary out."
        )
    parts = cut_up(text, plan.corpus, parallel)
    objectives = [plan.objective(name) for name in plan.objectives]
    joint = [objective.name for objective in objectives if objective.one_vocabulary]
    if joint and not plan.corpus.joint_vocabulary:
        raise UserError(
            f"{joint[0]} writes text and translations with one vocabulary. Got one for each language.\n"
            "Set [corpus] joint_vocabulary = true."
        )
    readers = [name for name in plan.objectives if plan.reads(plan.objective(name)) != "sentence"]
    if readers and text.documents is None:
        raise UserError(
            f"{readers[0]} needs documents: consecutive sentences. {text.name} has none.\n"
            "Set [corpus] documents = true for a text with blank lines between documents, or name a document_column."
        )
    sentinels = max(objective.num_sentinels(plan.model.positions) for objective in objectives)
    key = digest([_VERSION, text.digest, _settings(plan.corpus, parts), *([sentinels] if sentinels else [])])
    analysed = at_most(distinct(parts.test), plan.analysis.sentences)
    if given is None:
        train = partial(_train_tokenizers, parts.train, plan.corpus, parallel, sentinels)
        home = kept(folder / f"tokenizers-{key}", train, "The study's tokenizers")
        tokenizers = (
            corpus.load_tokenizer(home / "source"),
            corpus.load_tokenizer(home / "target") if parallel else None,
        )
    else:
        source, target = given(parts.train)
        tokenizers = source, target if parallel else None
        key = digest([key, [corpus.tokenizer_digest(one) for one in tokenizers if one is not None]])
    return StudyData(
        train=parts.train,
        validation=parts.validation,
        test=parts.test,
        analysed=analysed,
        other_domain=_other_domain(text, parts, plan.corpus, parallel),
        further={name: own.read(plan, analysed) for name, own in further_sentences().items()},
        tokenizer=tokenizers[0],
        target_tokenizer=tokenizers[1],
        counted=any(objective.needs_counts for objective in objectives),
        card=corpus.card_facts(plan.corpus.name),
        parts=parts,
        key=key,
    )


def _other_domain(text: corpus.Corpus, parts: Parts, plan: CorpusPlan, parallel: bool) -> corpus.Corpus | None:
    if not plan.transfer_name:
        return None
    other = usable(like(text, read(plan.transfer_name, plan), parallel), plan)
    return distinct(without(other, [parts.train, parts.validation, parts.test]))


def _settings(plan: CorpusPlan, parts: Parts) -> dict[str, Any]:
    """The plan's settings that determine the data; published parts are given by content, and absent ones left out."""
    settings = dataclasses.asdict(plan)
    for name in ("transfer_name", "text_column", "translation_column", "document_column", "documents", "lines"):
        del settings[name]  # nothing is trained on the other domain, and the corpus's digest covers the columns
    if not plan.joint_vocabulary:
        del settings["joint_vocabulary"]  # so that the data of versions without this setting are found again
    if plan.split == "source" or (plan.validation_name and plan.test_name):
        del settings["split"]  # as in earlier versions, which had only this rule
    if plan.sentences:
        settings["chosen_by"] = "content"  # earlier versions chose by line
    for name, part in (("validation_name", parts.validation), ("test_name", parts.test)):
        if settings.pop(name):
            settings[name] = part.digest
    return settings


def _train_tokenizers(train: corpus.Corpus, plan: CorpusPlan, parallel: bool, sentinels: int, folder: Path) -> None:
    learn = partial(corpus.train_tokenizer, vocab_size=plan.vocabulary, lowercase=plan.lowercase)
    task = f"Training a tokenizer of {plan.vocabulary:,} subwords for the"
    if parallel and plan.joint_vocabulary:
        current_display().note(f"{task} source and target sentences together.")
        texts = chain.from_iterable(zip(train.column("text"), train.column("translation"), strict=True))
        tokenizer = learn(texts, sentinels=sentinels)
        for name in ("source", "target"):
            tokenizer.save_pretrained(folder / name)
        return
    sides = {"source": "text", "target": "translation"} if parallel else {"source": "text"}
    for name, column in sides.items():
        current_display().note(f"{task} {name} sentences.")
        learn(train.column(column), sentinels=sentinels if name == "source" else 0).save_pretrained(folder / name)
