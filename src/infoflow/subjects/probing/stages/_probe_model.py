"""What the section `[probing]` requests: measures, sentences, and the stage that probes the models of a study."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import SilentDisplay, UserError, digest, use_display
from infoflow.studies import AbstractStage, AnalyzeOptions, StudyModels, StudyPlan, Train
from infoflow.studies._data import Sentences
from infoflow.studies._measures import measures_by_table
from infoflow.studies._parts import at_most, distinct, usable
from infoflow.studies.stages._measure import AbstractStudyMeasure, described
from infoflow.studies.stages._measure_model import behind_each_other, measured_subjects

from .. import measures
from ..settings import OF_ATTENTION, OF_TREES, ProbingPlan

PROBED = "probed"


def requested(settings: StudyPlan | AnalyzeOptions) -> list[AbstractMeasure]:
    """The measures for the section `[probing]` of a plan or of the options of an analysis."""
    return probing_measures(settings.probing)


def probing_measures(plan: ProbingPlan) -> list[AbstractMeasure]:
    """Measures for each task with each probe; probes of trees and minimal pairs appear once."""
    found: list[AbstractMeasure] = []
    for task in dict.fromkeys(task for task in plan.tasks if task != measures.MINIMAL_PAIRS_TASK):
        for probe in plan.probes_of(task):
            found += _probe(plan, task, probe)
    if OF_TREES in plan.probes:
        found.append(measures.StructuralProbe(sentences=plan.sentences, seeds=plan.seeds))
    if OF_ATTENTION in plan.probes:
        found.append(measures.AttentionProbe(sentences=plan.sentences))
    if measures.MINIMAL_PAIRS_TASK in plan.tasks:
        found.append(measures.MinimalPairs(pairs=plan.sentences))
    return found


def _probe(plan: ProbingPlan, task: str, probe: str) -> list[AbstractMeasure]:
    sizes = {"sentences": plan.sentences, "seeds": plan.seeds}
    if probe == "edge":
        return [measures.EdgeProbe(task, **sizes), measures.EdgeDepth(task, **sizes)]
    if probe in ("online", "variational"):
        return [measures.Codelength(task, code=probe, **sizes)]
    own = {"probe": probe, "sizes": plan.sizes, **sizes}
    return [measures.Probe(task, **own), *([measures.ProbeExamples(task, **own)] if probe == "linear" else [])]


def requested_corpus(options: AnalyzeOptions, chat: Callable[[str], Corpus] | None) -> Corpus | None:
    """The sentences for the tasks of an analysis, followed by those of its test corpus; None without tasks.

    `chat` reads conversations.
    """
    plan = options.probing
    if not plan.on:
        return None
    columns = {name: getattr(options, name) for name in ("text_column", "translation_column", "label_column")}
    columns |= {"bad_column": options.bad_column, "lines": options.lines}

    def read(source: str, labels: str) -> Corpus:
        corpus = chat(source) if chat else task_corpus(plan, source, tags=options.tags, labels=labels, **columns)
        # many minimal pairs share one acceptable sentence
        return at_most(corpus if "bad" in corpus.columns else distinct(corpus), options.sentences)

    corpus = read(options.corpus, options.labels)
    corpus = corpus.with_test(read(options.test, "")) if options.test else corpus
    check_tasks(plan, corpus)
    return corpus


def task_corpus(plan: ProbingPlan, source: str, **how: Any) -> Corpus:
    """The corpus called `source`, with the columns that the plan's tasks need; for `how`, see `load_task_corpus`."""
    corpus = measures.load_task_corpus(source, _tasks(plan), **how)
    for task in _tasks(plan):
        measures.check_task(task, corpus)
    return corpus


def check_tasks(plan: ProbingPlan, corpus: Corpus) -> None:
    """Build every task once, so that a faulty one is reported before any model is trained or read."""
    with use_display(SilentDisplay()):  # the probing itself reports what is left out
        for task in _tasks(plan):
            measures.check_task(task, corpus)
            if task != measures.MINIMAL_PAIRS_TASK:
                measures.build_task(task, corpus)


def _tasks(plan: ProbingPlan) -> list[str]:
    """The plan's tasks; tree probes need the columns of arcs."""
    return [*plan.tasks, *(["arc"] if plan.trees else [])]


def probing_tables(plan: ProbingPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(measure.name for measure in probing_measures(plan)))


def check_checkpoints(plan: StudyPlan, names: Sequence[str]) -> None:
    """Refuse tables of probes that the section `[probing]` does not request."""
    wanted = [name for name in names if name in measures.OF_CHECKPOINTS]
    made = probing_tables(plan.probing) if wanted else ()
    if missing := [name for name in wanted if name not in made]:
        what = 'tasks = ["minimal-pairs"]' if missing[0] == measures.MINIMAL_PAIRS.name else 'tasks = ["upos"]'
        raise UserError(
            f"checkpoints.light and heavy name {missing[0]}, but no setting of [probing] computes it. Add {what} "
            "there, or leave the table out."
        )


def _settings(plan: StudyPlan) -> list[Any]:
    return [plan.analysis.sentences, plan.probing] if plan.probing.on else []


def _probed(plan: StudyPlan, analysed: Corpus) -> Corpus | None:
    """The sentences on which probes are trained and scored, limited to lengths that the models were trained on."""
    if not plan.probing.on:
        return None
    section = plan.probing
    named = section.corpus and distinct(usable(task_corpus(section, section.corpus), plan.corpus))
    return at_most(named or analysed, section.corpus_sentences)


SENTENCES = {PROBED: Sentences(_settings, _probed)}


def prepared(models: StudyModels, elsewhere: bool) -> list[Any]:
    """Check that every task can be built from the study's sentences, once for all processes."""
    if not models.prepared and (probed := models.data.further[PROBED]) is not None:
        check_tasks(models.plan.probing, probed)
    return []


@dataclass(frozen=True, kw_only=True, eq=False)
class AbstractProbing(AbstractStudyMeasure):
    """Probes one trained or untrained model on the sentences for the plan's tasks."""

    @property
    def corpus(self) -> Corpus:
        probed = self.models.data.further[PROBED]
        assert probed is not None, "the plan names tasks"
        return probed

    def table_keys(self) -> dict[str, str]:
        states, probed = self.models.states_key(self.subject), self.models.further[PROBED]
        return {name: digest([states, probed, described(own)]) for name, own in self.by_table.items()}


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeModel(AbstractProbing):
    """Probes a model of a study, trained or not, for the tasks of the section `probing`."""

    kind = "probe"
    named = "probe {self.subject.label}"

    @classmethod
    def planned(cls, models: StudyModels, before: Sequence[AbstractStage]) -> "list[ProbeModel]":
        """One stage for every measured model; controls that are equal for many objectives run one after another."""
        if not models.plan.probing.on:
            return []
        trained = [stage.recipe for stage in before if isinstance(stage, Train)]
        subjects = measured_subjects(models, trained)
        return behind_each_other([cls(models=models, subject=each) for each in subjects])

    @property
    def estimate(self) -> float:
        return 0.05 * len(self.models.plan.probing.tasks)

    def depends(self) -> list[Any]:
        return ["probe", self.subject.name, self.table_keys()]

    @cached_property
    def by_table(self) -> Mapping[str, list[AbstractMeasure]]:
        return measures_by_table(probing_measures(self.models.plan.probing))
