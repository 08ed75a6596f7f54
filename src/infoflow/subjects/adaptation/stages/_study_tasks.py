"""The data of a study's tuning: the tasks for which its models are tuned, and the domain corpus before that."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.architectures import EncoderLayout, Layout
from infoflow.corpus import Corpus
from infoflow.flow import first_then_others, is_first, wait_for_all
from infoflow.foundation import (
    SilentDisplay,
    UserError,
    as_written,
    atomic_write,
    current_display,
    digest,
    read_object,
    use_display,
    version,
)
from infoflow.objectives import AbstractObjective
from infoflow.results import Recipe
from infoflow.studies._data import StudyData, Tokenizers, prepare
from infoflow.studies._parts import read
from infoflow.studies._plan import StudyPlan
from infoflow.studies._plan_sections import CorpusPlan
from infoflow.studies._study_models import StudyModels
from infoflow.subjects.probing.settings import ProbingPlan

from ..measures import (
    FROZEN_METHODS,
    ExtendedVocabulary,
    Shape,
    TaskData,
    as_text,
    built_in_task,
    extend_vocabulary,
    load_task,
    training_part,
)
from ..settings import DomainPlan, TunePlan

_VERSION = 1  # increase when the same plan yields other tasks
_READS: tuple[Layout, ...] = (*get_args(EncoderLayout), "decoder", "encoder-decoder", "bidirectional-pair")
"""Layouts with a stack that reads text. For encoder-decoders, the encoder is tuned; for pairs, the forward model."""
_WRITES: tuple[Layout, ...] = ("decoder", "encoder-decoder", "bidirectional-pair")
_CAUSAL: tuple[Layout, ...] = ("decoder", "bidirectional-pair")
_NO_CHOICE = ("gpt2", "t5")  # families without a multiple-choice head in transformers


class StudyTasks:
    """The tasks of a plan.

    `prepared` says that another process of the same study has already read the tasks and stored what keys depend on.
    """

    def __init__(self, plan: StudyPlan, folder: Path, prepared: bool) -> None:
        self._plan, self._prepared = plan, prepared
        self._read, self._noted = dict[str, TaskData](), set[str]()
        self._note: dict[str, Any] = {}
        if plan.tune:
            of = digest([version("infoflow"), _VERSION, [_source(one) for one in plan.tune]])
            self._note = _kept(folder / "tasks.json", "tasks", of, prepared, self._looked_at)

    def _looked_at(self) -> dict[str, Any]:
        """Facts about each task; raises a UserError for too few examples before anything is trained, and reports which
        classes have none.
        """
        self._note = {entry.name: _facts(self.data(entry), entry) for entry in self._plan.tune}
        if not self._prepared:
            for entry in self._plan.tune:
                for size in self.sizes(entry):
                    training_part(self.data(entry), size, "")
        return self._note

    def data(self, entry: TunePlan) -> TaskData:
        """The parts of a task."""
        if entry.name not in self._read:
            silent = use_display(SilentDisplay()) if entry.name in self._note else nullcontext()  # already reported
            with silent:
                self._read[entry.name] = first_then_others(lambda: _task_data(entry))
        return self._read[entry.name]

    def digest(self, entry: TunePlan) -> str:
        """Digest of the content of all parts."""
        return self._note[entry.name]["digest"]

    def shape(self, entry: TunePlan) -> Shape:
        """The shape of the task."""
        return self._note[entry.name]["shape"]

    def sizes(self, entry: TunePlan) -> list[int]:
        """Distinct numbers of training examples, 0 for all; numbers that are too large are dropped and reported."""
        have = self._note[entry.name]["train"]
        sizes = [0 if size == have else size for size in entry.examples]
        if beyond := [size for size in sizes if size > have]:
            self.tell(
                f"{entry.name} has {have:,} training examples, so tuning on {', '.join(map(str, beyond))} is skipped."
            )
        return [size for size in dict.fromkeys(sizes) if size <= have] or [0]

    def fitting(self, entry: TunePlan, recipes: Sequence[Recipe]) -> list[Recipe]:
        """The recipes whose models can be tuned for the task; the others are reported."""
        shape, plan = self.shape(entry), self._plan
        wanted = [one for one in recipes if not entry.objectives or one.objective.label in entry.objectives]
        found = [one for one in wanted if fits_task(shape, one, plan.objective(one.objective.label))]
        if left := dict.fromkeys(one.name.partition("/")[0] for one in wanted if one not in found):
            what = "that generates text" if shape == "generation" else f"that has an output for {shape}"
            self.tell(f"{entry.name} needs a model {what}. Left out: {', '.join(left)}.")
        return found

    def methods(self, entry: TunePlan) -> list[str]:
        """Tuning methods for the task; generation uses the pretrained head, so it excludes frozen features."""
        if self.shape(entry) != "generation" or not {*FROZEN_METHODS} & {*entry.methods}:
            return list(entry.methods)
        found = [method for method in entry.methods if method not in FROZEN_METHODS]
        why = "the pretrained head writes the text, so frozen features leave nothing to train"
        if not found:
            raise UserError(
                f"tune.methods of {entry.name} must contain full, top, decay or lora: {why}. "
                f"Got {as_written(entry.methods)}. Add one."
            )
        self.tell(f"{entry.name}: {why}. Only these methods are used: {', '.join(found)}.")
        return found

    def tell(self, note: str) -> None:
        """Report something once, only in the first process of a study."""
        if note not in self._noted and not self._prepared:
            current_display().note(note)
        self._noted.add(note)

    def share(self, entry: TunePlan, size: int) -> float:
        """Number of training examples for an entry of `sizes`, in thousands."""
        return (size or self._note[entry.name]["train"]) / 1000


def fits_task(shape: Shape, recipe: Recipe, objective: AbstractObjective) -> bool:
    """Whether a model of the recipe can be tuned for tasks of the shape.

    Generation needs a model that writes, the other tasks one that reads. Without attention to later tokens, a model
    cannot know at a word whether an answer begins there, nor anything at the first token, which multiple choice reads.
    """
    layout, family = objective.layout, recipe.architecture.name
    if layout not in _READS or family == "elmo":
        return False
    if shape == "generation":
        return layout in _WRITES
    if shape in ("span", "choice") and layout in _CAUSAL:
        return False
    return shape != "choice" or family not in _NO_CHOICE


def unlabelled(data: TaskData) -> list[str]:
    """The distinct texts of the training part, without labels, for the phase "task"."""
    corpus = data.train
    columns = [name for name in ("text", "second", "question") if name in corpus.columns]
    return list(dict.fromkeys(text for name in columns for text in corpus.column(name) if text))


def _source(entry: TunePlan) -> list[Any]:
    """Everything in the plan that determines a task's data."""
    words = [*(["as text"] if entry.as_text else []), *(["several labels"] if entry.multi else [])]
    return [entry.name, entry.train, entry.dev, entry.test, entry.shape, entry.columns, entry.size, *words]


def _task_data(entry: TunePlan) -> TaskData:
    if entry.train:
        parts = {"train": entry.train, "dev": entry.dev or None, "test": entry.test or None}
        how: dict[str, Any] = {"shape": entry.shape or None, "multi": entry.multi, **entry.named_columns}
        data = load_task(entry.name, **parts, **how)
    else:
        data = built_in_task(entry.name, entry.size)
    return as_text(data) if entry.as_text else data


def _facts(data: TaskData, entry: TunePlan) -> dict[str, Any]:
    parts = (data.train, data.dev, data.test)
    columns = [sorted(part.columns) for part in parts]
    named = [data.options["column"]] if "tags" in entry.named_columns else []
    content = [data.shape, data.labels, [part.digest for part in parts], columns, *named]
    return {"digest": digest(content), "shape": data.shape, "train": len(data.train)}


def _kept(path: Path, what: str, of: str, prepared: bool, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The stored content `what` of a note, if another process has prepared it for the same plan; otherwise made and
    stored.
    """
    if prepared:
        with suppress(OSError, ValueError, KeyError, TypeError):
            note = read_object(path)
            if note["of"] == of:
                return note[what]
    found = make()
    if is_first():
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary:
            temporary.write_text(json.dumps({"of": of, what: found}), encoding="utf-8")
    wait_for_all()
    return found


def learned_tokens(tokenizer: PreTrainedTokenizerBase, text: Corpus, num: int) -> ExtendedVocabulary:
    """The tokenizer with up to `num` more tokens, learned on `text`; a note reports them."""
    found = extend_vocabulary(tokenizer, text.column("text"), num)
    current_display().note(
        f"{len(found.pieces):,} tokens were learned on {text.name} and added; each starts as the mean of its pieces."
    )
    return found


# The domain corpus of a study, for continued models and models from scratch.

CONTINUED, TASK_TEXTS, SCRATCH, AS_IS = "continued", "task-texts", "scratch", "as-is"


class StudyDomain:
    """The domain of a plan, in addition to the study's general data.

    `prepared` says that another process of the same study has read the domain and stored what keys depend on.
    """

    def __init__(self, plan: StudyPlan, folder: Path, general: Callable[[], StudyData], prepared: bool) -> None:
        self.plan, self._folder, self._general, self._prepared = plan, folder, general, prepared
        self._note: dict[str, Any] = {}
        if plan.domain.corpus:
            of = digest([version("infoflow"), plan.domain, plan.corpus, plan.objectives])
            self._note = _kept(folder / "domain.json", "facts", of, prepared, self._looked_at)

    def key(self, strategy: str) -> str:
        """Key of the domain's data for a strategy."""
        return self._note["keys"][strategy] if self.plan.domain.corpus else "general"

    @cached_property
    def recipes(self) -> list[Recipe]:
        """Recipes that are trained on the domain; unsuitable objectives are left out and reported."""
        plan = self.plan
        names = list(plan.domain.objectives or plan.objectives) if plan.domain.on else []
        fitting = [name for name in names if self._fits(name)]
        left = [name for name in names if name not in fitting]
        if left and not self._prepared:
            current_display().note(
                f"[domain] leaves out {', '.join(left)}: they need translations or documents, which its corpus lacks, "
                "or they learn from another model, or have no layers."
            )
        return plan.recipes(fitting)

    def _fits(self, name: str) -> bool:
        if self.plan.domain.corpus:
            return name in self._note["objectives"]  # the objectives that `_can_read` chose
        return _continues(self.plan.objective(name))

    @cached_property
    def vocabulary(self) -> ExtendedVocabulary | None:
        """The tokens that "continued" adds; None if it adds none."""
        if not self.plan.domain.corpus:
            return None
        self.data(CONTINUED)
        return self._extended

    def data(self, strategy: str) -> StudyData:
        """The domain's parts with the strategy's tokenizers; without a corpus, the study's own data."""
        if not self.plan.domain.corpus:
            return self._general()
        return self._continued if strategy == CONTINUED else self._scratch

    @cached_property
    def _continued(self) -> StudyData:
        self._extended: ExtendedVocabulary | None = None
        return self._cut_up(self._own_tokenizers)

    @cached_property
    def _scratch(self) -> StudyData:
        return self._cut_up(None)

    def _own_tokenizers(self, text: Corpus) -> Tokenizers:
        """The study's tokenizers, with new tokens if the plan requests them."""
        general, num = self._general(), self.plan.domain.extend_vocabulary
        if not num:
            return general.tokenizer, general.target_tokenizer
        self._extended = learned_tokens(general.tokenizer, text, num)
        return self._extended.tokenizer, general.target_tokenizer

    def _cut_up(self, given: Any) -> StudyData:
        plan = domain_plan(self.plan, self._readable())
        silent = use_display(SilentDisplay()) if self._note else nullcontext()  # already reported
        with silent:
            return first_then_others(lambda: prepare(plan, self._folder / "domain", given))

    def _readable(self) -> tuple[str, ...]:
        if self._note:
            return tuple(self._note["objectives"])
        corpus = read(self.plan.domain.corpus, corpus_plan(self.plan))
        names = self.plan.domain.objectives or self.plan.objectives
        return tuple(name for name in names if _can_read(self.plan, name, corpus))

    def _looked_at(self) -> dict[str, Any]:
        objectives = list(self._readable())
        strategies = self.plan.domain.strategies if objectives else ()
        return {"objectives": objectives, "keys": {strategy: self.data(strategy).key for strategy in strategies}}


def corpus_plan(plan: StudyPlan) -> CorpusPlan:
    """How the domain's corpus is read and split: the study's settings, overridden by `[domain]`."""
    section = plan.domain
    named = {
        name: getattr(section, name)
        for name in ("text_column", "translation_column", "document_column", "documents", "sentences")
    }
    vocabulary = section.vocabulary or plan.corpus.vocabulary
    others = {"validation_name": "", "test_name": "", "transfer_name": "", "vocabulary": vocabulary}
    return dataclasses.replace(plan.corpus, name=section.corpus, **named, **others)


def domain_plan(plan: StudyPlan, objectives: tuple[str, ...]) -> StudyPlan:
    """The plan for training models with these objectives on the domain's corpus alone."""
    families = tuple(one for one in plan.architectures if any(plan.fits(name, one) for name in objectives))
    others: dict[str, Any] = {"probing": ProbingPlan(), "tune": (), "domain": DomainPlan()}
    return plan.for_models(objectives=objectives, architectures=families, corpus=corpus_plan(plan), **others)


def _can_read(plan: StudyPlan, name: str, corpus: Corpus) -> bool:
    objective = plan.objective(name)
    if not _continues(objective) or (objective.needs_translation and "translation" not in corpus.columns):
        return False
    return plan.reads(objective) == "sentence" or corpus.documents is not None


def _continues(objective: AbstractObjective) -> bool:
    """Whether training can be continued: there are layers, and no other model is needed as a teacher."""
    return objective.family != "static" and not objective.teacher


def prepared(models: StudyModels, elsewhere: bool) -> list[StudyTasks | StudyDomain]:
    """The tasks and the domain of a study's models; `elsewhere` says that another process has prepared them."""
    folder = models.bench.folder
    return [
        StudyTasks(models.plan, folder, elsewhere),
        StudyDomain(models.plan, folder, lambda: models.data, elsewhere),
    ]
