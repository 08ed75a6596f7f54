"""The domain corpus of a study, as continued models and models from scratch read it."""

import dataclasses
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus
from infoflow.flow import first_then_others, is_first, wait_for_all
from infoflow.foundation import SilentDisplay, atomic_write, current_display, digest, read_object, use_display, version
from infoflow.results import Recipe
from infoflow.studies._data import StudyData, Tokenizers, prepare
from infoflow.studies._parts import read
from infoflow.studies._plan import StudyPlan
from infoflow.studies._plan_sections import CorpusPlan
from infoflow.studies._probing_plan import ProbingPlan
from infoflow.studies._study_models import StudyModels

from ..measures import ExtendedVocabulary, extend_vocabulary
from ..settings import DomainPlan
from ._study_tasks import StudyTasks

CONTINUED, TASK_TEXTS, SCRATCH, AS_IS = "continued", "task-texts", "scratch", "as-is"
_NOTE = "domain.json"


class StudyDomain:
    """The domain of a plan, in addition to the study's general data.

    `prepared`: another process of the same study has read the domain and stored what keys depend on.
    """

    def __init__(self, plan: StudyPlan, folder: Path, general: Callable[[], StudyData], prepared: bool) -> None:
        self.plan, self._folder, self._general, self._prepared = plan, folder, general, prepared
        self._note = _known(folder / _NOTE, self._of) if prepared else {}
        if self._note or not plan.domain.corpus:
            return
        self._note = self._looked_at()
        if is_first():
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / _NOTE) as temporary:
                temporary.write_text(json.dumps({"of": self._of, "facts": self._note}), encoding="utf-8")
        wait_for_all()

    @cached_property
    def _of(self) -> str:
        return digest([version("infoflow"), self.plan.domain, self.plan.corpus, self.plan.objectives])

    def key(self, strategy: str) -> str:
        """Key of the domain's data for a strategy."""
        return self._note["keys"][strategy] if self.plan.domain.corpus else "general"

    @cached_property
    def recipes(self) -> list[Recipe]:
        """Recipes that continue in the domain; unsuitable objectives are left out and reported."""
        plan = self.plan
        names = list(plan.domain.objectives or plan.objectives) if plan.domain.on else []
        fitting = [name for name in names if self._fits(name)]
        left = [name for name in names if name not in fitting]
        if left and not self._prepared:
            current_display().note(
                f"[domain] leaves out {', '.join(left)}: its corpus lacks translations or documents that they need, "
                "or they learn from another model, or have no layers."
            )
        return plan.recipes(fitting)

    def _fits(self, name: str) -> bool:
        objective = self.plan.objective(name)
        if objective.family == "static" or objective.teacher:
            return False
        return name in self._note["objectives"] if self.plan.domain.corpus else True

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
        self._extended = extend_vocabulary(general.tokenizer, text.column("text"), num)
        current_display().note(
            f"{len(self._extended.pieces):,} tokens were learned on {text.name} and added; each starts as the mean of "
            "its pieces."
        )
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
        keys = {strategy: self.data(strategy).key for strategy in strategies}
        return {"objectives": objectives, "keys": keys}


def corpus_plan(plan: StudyPlan) -> CorpusPlan:
    """How the domain's corpus is read and split: the study's settings, overridden by `[domain]`."""
    asked = plan.domain
    named = {
        name: getattr(asked, name)
        for name in ("text_column", "translation_column", "document_column", "documents", "sentences")
    }
    vocabulary = asked.vocabulary or plan.corpus.vocabulary
    others = {"validation_name": "", "test_name": "", "transfer_name": "", "vocabulary": vocabulary}
    return dataclasses.replace(plan.corpus, name=asked.corpus, **named, **others)


def domain_plan(plan: StudyPlan, objectives: tuple[str, ...]) -> StudyPlan:
    """The plan of models of these objectives on the domain's corpus alone."""
    families = tuple(one for one in plan.architectures if any(plan.fits(name, one) for name in objectives))
    others: dict[str, Any] = {"probing": ProbingPlan(), "tune": (), "domain": DomainPlan()}
    return plan.for_models(objectives=objectives, architectures=families, corpus=corpus_plan(plan), **others)


def _can_read(plan: StudyPlan, name: str, corpus: Corpus) -> bool:
    objective = plan.objective(name)
    if objective.family == "static" or objective.teacher:
        return False
    if objective.needs_translation and "translation" not in corpus.columns:
        return False
    return plan.reads(objective) == "sentence" or corpus.documents is not None


def _known(path: Path, of: str) -> dict[str, Any]:
    """Contents of the note; empty if it is missing, damaged, or of another plan."""
    try:
        facts = read_object(path)
        return facts["facts"] if facts["of"] == of else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def prepared(models: StudyModels, elsewhere: bool) -> list[StudyTasks | StudyDomain]:
    """The tasks and the domain of a study's models; `elsewhere`: another process has checked them."""
    folder = models.bench.folder
    return [
        StudyTasks(models.plan, folder, elsewhere),
        StudyDomain(models.plan, folder, lambda: models.data, elsewhere),
    ]
