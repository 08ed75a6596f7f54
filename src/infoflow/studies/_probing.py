"""The measures of probing that a plan asks for, and the corpus that its tasks need."""

from typing import TYPE_CHECKING

from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure
from infoflow.foundation import SilentDisplay, use_display
from infoflow.probing import (
    MINIMAL_PAIRS_TASK,
    Codelength,
    EdgeDepth,
    EdgeProbe,
    MinimalPairs,
    Probe,
    StructuralProbe,
    build_task,
    check_task,
    load_task_corpus,
)

from ._parts import at_most, distinct
from ._plan_sections import AnalysisPlan
from ._probes import OF_TREES

if TYPE_CHECKING:
    from ._given import AnalyzeOptions


def probing_measures(plan: AnalysisPlan) -> list[AbstractMeasure]:
    """Each task with each probe; structural probes and minimal pairs once."""
    sentences = plan.probing_sentences
    found: list[AbstractMeasure] = []
    for task in dict.fromkeys(task for task in plan.probe_tasks if task != MINIMAL_PAIRS_TASK):
        for probe in dict.fromkeys(plan.probes):
            found += _probe(task, probe, sentences)
    if OF_TREES in plan.probes:
        found.append(StructuralProbe(sentences=sentences))
    if MINIMAL_PAIRS_TASK in plan.probe_tasks:
        found.append(MinimalPairs(pairs=sentences))
    return found


def _probe(task: str, probe: str, sentences: int) -> list[AbstractMeasure]:
    if probe == OF_TREES:
        return []
    if probe == "edge":
        return [EdgeProbe(task, sentences=sentences), EdgeDepth(task, sentences=sentences)]
    if probe in ("online", "variational"):
        return [Codelength(task, code=probe, sentences=sentences)]
    return [Probe(task, probe=probe, sentences=sentences)]


def probed_corpus(options: "AnalyzeOptions") -> Corpus:
    """The sentences that the tasks of an analysis ask about, and behind them those of its test corpus.

    Raises:
        UserError: A corpus cannot be read, or lacks what a task needs.
    """
    plan = options.measures
    columns = {name: getattr(options, name) for name in ("text_column", "translation_column", "label_column")}
    columns["bad_column"] = options.bad_column
    tasks = [*plan.probe_tasks, *(["arc"] if OF_TREES in plan.probes else [])]

    def read(source: str, labels: str) -> Corpus:
        corpus = load_task_corpus(source, tasks, tags=options.tags, labels=labels, **columns)
        for task in tasks:
            check_task(task, corpus)
        # The acceptable sentence of many minimal pairs is one and the same.
        return at_most(corpus if "bad" in corpus.columns else distinct(corpus), options.sentences)

    corpus = read(options.corpus, options.labels)
    corpus = corpus.with_test(read(options.test, "")) if options.test else corpus
    with use_display(SilentDisplay()):  # what is left out is told where it is probed
        for task in tasks:
            if task != MINIMAL_PAIRS_TASK:
                build_task(task, corpus)  # what is wrong with it is told before any model is read
    return corpus


def asks_tasks(plan: AnalysisPlan) -> bool:
    """Whether a plan probes anything."""
    return bool(plan.probe_tasks) or OF_TREES in plan.probes


def probing_tables(plan: AnalysisPlan) -> tuple[str, ...]:
    """The tables that the plan's probes write."""
    return tuple(dict.fromkeys(measure.name for measure in probing_measures(plan)))
