"""The probing measures that a plan requests, and the corpus that their tasks need."""

from typing import TYPE_CHECKING, Any

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import SilentDisplay, use_display
from infoflow.probing import (
    MINIMAL_PAIRS_TASK,
    AttentionProbe,
    Codelength,
    EdgeDepth,
    EdgeProbe,
    MinimalPairs,
    Probe,
    ProbeExamples,
    StructuralProbe,
    build_task,
    check_task,
    load_task_corpus,
)

from ._parts import at_most, distinct
from ._probing_plan import OF_ATTENTION, OF_TREES, ProbingPlan

if TYPE_CHECKING:
    from ._given import AnalyzeOptions


def probing_measures(plan: ProbingPlan) -> list[AbstractMeasure]:
    """Each task with each probe; probes of trees and minimal pairs appear once."""
    found: list[AbstractMeasure] = []
    for task in dict.fromkeys(task for task in plan.tasks if task != MINIMAL_PAIRS_TASK):
        for probe in plan.probes_of(task):
            found += _probe(plan, task, probe)
    if OF_TREES in plan.probes:
        found.append(StructuralProbe(sentences=plan.sentences, seeds=plan.seeds))
    if OF_ATTENTION in plan.probes:
        found.append(AttentionProbe(sentences=plan.sentences))
    if MINIMAL_PAIRS_TASK in plan.tasks:
        found.append(MinimalPairs(pairs=plan.sentences))
    return found


def _probe(plan: ProbingPlan, task: str, probe: str) -> list[AbstractMeasure]:
    sizes = {"sentences": plan.sentences, "seeds": plan.seeds}
    if probe == "edge":
        return [EdgeProbe(task, **sizes), EdgeDepth(task, **sizes)]
    if probe in ("online", "variational"):
        return [Codelength(task, code=probe, **sizes)]
    own = {"probe": probe, "sizes": plan.sizes, **sizes}
    return [Probe(task, **own), *([ProbeExamples(task, **own)] if probe == "linear" else [])]


def probed_corpus(options: "AnalyzeOptions") -> Corpus:
    """The sentences for the tasks of an analysis, followed by those of its test corpus.

    Raises:
        UserError: A corpus cannot be read, or lacks what a task needs.
    """
    plan = options.probing
    columns = {name: getattr(options, name) for name in ("text_column", "translation_column", "label_column")}
    columns["bad_column"] = options.bad_column

    def read(source: str, labels: str) -> Corpus:
        corpus = task_corpus(plan, source, tags=options.tags, labels=labels, **columns)
        # many minimal pairs share one acceptable sentence
        return at_most(corpus if "bad" in corpus.columns else distinct(corpus), options.sentences)

    corpus = read(options.corpus, options.labels)
    corpus = corpus.with_test(read(options.test, "")) if options.test else corpus
    check_tasks(plan, corpus)
    return corpus


def task_corpus(plan: ProbingPlan, source: str, **how: Any) -> Corpus:
    """The corpus called `source`, with the columns that the plan's tasks need; `how`: see `load_task_corpus`.

    Raises:
        UserError: It cannot be read, or lacks what a task needs.
    """
    corpus = load_task_corpus(source, _tasks(plan), **how)
    for task in _tasks(plan):
        check_task(task, corpus)
    return corpus


def check_tasks(plan: ProbingPlan, corpus: Corpus) -> None:
    """Build every task once, so that a faulty one is reported before any model is trained or read.

    Raises:
        UserError: The corpus does not suit a task.
    """
    with use_display(SilentDisplay()):  # the probing itself reports what is left out
        for task in _tasks(plan):
            check_task(task, corpus)
            if task != MINIMAL_PAIRS_TASK:
                build_task(task, corpus)


def _tasks(plan: ProbingPlan) -> list[str]:
    """The plan's tasks; tree probes need the columns of arcs."""
    return [*plan.tasks, *(["arc"] if plan.trees else [])]


def probing_tables(plan: ProbingPlan) -> tuple[str, ...]:
    """The tables that the plan's probes write."""
    return tuple(dict.fromkeys(measure.name for measure in probing_measures(plan)))
