"""The default measures and requested probes of a study and of `infoflow analyze`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infoflow import heads, probing, representations
from infoflow._subjects import provided
from infoflow.corpus import Corpus
from infoflow.flow import AbstractMeasure, PairMeasure, Regime, describe_measure
from infoflow.foundation import SilentDisplay, UserError, did_you_mean, use_display
from infoflow.results import TABLES, TASK_SCORES

from ._parts import at_most, distinct
from ._plan import StudyPlan
from ._plan_sections import OF_ATTENTION, OF_TREES, AnalysisPlan, ProbingPlan

if TYPE_CHECKING:
    from ._given import AnalyzeOptions


def probing_measures(plan: ProbingPlan) -> list[AbstractMeasure]:
    """Measures for each task with each probe; probes of trees and minimal pairs appear once."""
    found: list[AbstractMeasure] = []
    for task in dict.fromkeys(task for task in plan.tasks if task != probing.MINIMAL_PAIRS_TASK):
        for probe in plan.probes_of(task):
            found += _probe(plan, task, probe)
    if OF_TREES in plan.probes:
        found.append(probing.StructuralProbe(sentences=plan.sentences, seeds=plan.seeds))
    if OF_ATTENTION in plan.probes:
        found.append(probing.AttentionProbe(sentences=plan.sentences))
    if probing.MINIMAL_PAIRS_TASK in plan.tasks:
        found.append(probing.MinimalPairs(pairs=plan.sentences))
    return found


def _probe(plan: ProbingPlan, task: str, probe: str) -> list[AbstractMeasure]:
    sizes = {"sentences": plan.sentences, "seeds": plan.seeds}
    if probe == "edge":
        return [probing.EdgeProbe(task, **sizes), probing.EdgeDepth(task, **sizes)]
    if probe in ("online", "variational"):
        return [probing.Codelength(task, code=probe, **sizes)]
    own = {"probe": probe, "sizes": plan.sizes, **sizes}
    return [probing.Probe(task, **own), *([probing.ProbeExamples(task, **own)] if probe == "linear" else [])]


def probed_corpus(options: "AnalyzeOptions", chat: Callable[[str], Corpus] | None = None) -> Corpus:
    """The sentences for the tasks of an analysis, followed by those of its test corpus; `chat` reads conversations."""
    plan = options.probing
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
    corpus = probing.load_task_corpus(source, _tasks(plan), **how)
    for task in _tasks(plan):
        probing.check_task(task, corpus)
    return corpus


def check_tasks(plan: ProbingPlan, corpus: Corpus) -> None:
    """Build every task once, so that a faulty one is reported before any model is trained or read."""
    with use_display(SilentDisplay()):  # the probing itself reports what is left out
        for task in _tasks(plan):
            probing.check_task(task, corpus)
            if task != probing.MINIMAL_PAIRS_TASK:
                probing.build_task(task, corpus)


def _tasks(plan: ProbingPlan) -> list[str]:
    """The plan's tasks; tree probes need the columns of arcs."""
    return [*plan.tasks, *(["arc"] if plan.trees else [])]


def probing_tables(plan: ProbingPlan) -> tuple[str, ...]:
    return tuple(dict.fromkeys(measure.name for measure in probing_measures(plan)))


SCORES_ONLY = "task_scores"
"""The name in `AnalysisPlan.tables` for only the scores, which every study has."""

OF_PROBES = (probing.PROBE_SCORES.name, probing.MINIMAL_PAIRS.name)
"""Tables of the section `probing` that can be computed at checkpoints, on request."""
_MORE_INFORMATION = (probing.USABLE_INFORMATION_MLP.name, representations.MUTUAL_INFORMATION_WITHOUT_POSITION.name)
_BY_NAME = (heads.HEAD_BY_DISTANCE.name, heads.HEAD_RETRIEVAL.name)  # tables about long texts
_MOST_CLUSTERS = 10_000  # the published number, for when training sentences are read too


def light_tables() -> list[str]:
    """Tables that are declared as light and so measured at every checkpoint by default; scores always are."""
    return [table.name for table in TABLES.values() if table.light and table is not TASK_SCORES]


def standard_measures(plan: AnalysisPlan) -> list[AbstractMeasure]:
    """The measures of one model that the plan requests.

    Raises:
        UserError: The plan names a table that nothing writes.
    """
    measures, pairs = _every_measure(plan), _all_pairs(plan)
    known = [*dict.fromkeys(measure.name for measure in [*measures, *pairs]), SCORES_ONLY]
    if unknown := [name for name in plan.tables if name not in known]:
        meant = did_you_mean(unknown[0], known)
        raise UserError(f"analysis.tables has no table {unknown[0]}.{meant} Choose among: {', '.join(known)}.")
    off = [*_BY_NAME, *(kind.table.name for kind in _of_subjects() if not kind.by_default)]  # unless named
    off += [] if plan.more_information else _MORE_INFORMATION
    wanted = plan.tables or [name for name in known if name not in off]
    return [measure for measure in measures if measure.name in wanted]


def check_tables(plan: StudyPlan) -> None:
    """Refuse names of tables that nothing writes, before any work starts."""
    standard_measures(plan.analysis)
    checkpoint_tables(plan, heavy=True)


def checkpoint_tables(plan: StudyPlan, heavy: bool) -> list[str]:
    """Names of the tables that the plan requests at a checkpoint, either at a heavy step or at any other step."""
    names = list(plan.checkpoints.light or light_tables()) + (list(plan.checkpoints.heavy) if heavy else [])
    wanted = list(dict.fromkeys(names))
    elsewhere = [*(name for own in provided("measures", "OF_CHECKPOINTS") for name in own), *OF_PROBES]
    named_measures(
        replace(plan.analysis, tables=()),
        [name for name in wanted if name not in elsewhere],
        "checkpoints.light and heavy",
        elsewhere,
    )
    _check_probed(plan, [name for name in wanted if name in OF_PROBES])
    return wanted


def _check_probed(plan: StudyPlan, names: Sequence[str]) -> None:
    """Refuse probing tables that the section `probing` does not request."""
    made = {measure.name for measure in probing_measures(plan.probing)} if names else set()
    if missing := [name for name in names if name not in made]:
        what = 'tasks = ["minimal-pairs"]' if missing[0] == probing.MINIMAL_PAIRS.name else 'tasks = ["upos"]'
        raise UserError(
            f"checkpoints.light and heavy name {missing[0]}, but no setting of [probing] computes it. Add {what} "
            "there, or leave the table out."
        )


def named_measures(
    plan: AnalysisPlan, names: Sequence[str], setting: str = "--only", others: Sequence[str] = ()
) -> list[AbstractMeasure]:
    every = _every_measure(plan)
    known = [*dict.fromkeys(measure.name for measure in every), *others]
    if unknown := [name for name in names if name not in known]:
        meant = did_you_mean(unknown[0], known)
        raise UserError(f"{setting}: unknown measure {unknown[0]}.{meant} Choose among: {', '.join(known)}.")
    return [measure for measure in every if measure.name in names]


def _every_measure(plan: AnalysisPlan) -> list[AbstractMeasure]:
    """The measures of the core and of the subjects, each once."""
    every = [*_of_core(plan), *(kind.planned(plan) for kind in _of_subjects())]
    return list({str(describe_measure(measure)): measure for measure in every}.values())


def _of_subjects() -> list[type[AbstractMeasure]]:
    return [kind for own in provided("measures", "MEASURES") for kind in own]


def pair_measures(plan: AnalysisPlan) -> list[PairMeasure]:
    return [measure for measure in _all_pairs(plan) if not plan.tables or measure.name in plan.tables]


def _of_core(plan: AnalysisPlan) -> list[AbstractMeasure]:
    information: dict[str, Any] = {
        "clusters": plan.clusters,
        "types": plan.types,
        "occurrences": plan.occurrences,
        "clusterings": plan.clusterings,
        **({"most_clusters": _MOST_CLUSTERS} if plan.training_sentences else {}),
    }
    usable: dict[str, Any] = {"types": plan.types, "occurrences": plan.usable_occurrences}
    estimates: list[tuple[Callable[..., AbstractMeasure], dict[str, Any]]] = [
        (representations.MutualInformation, information),
        (representations.UsableInformation, usable),
        (representations.MutualInformationWithoutPosition, information),
        (probing.UsableInformationMLP, usable),
    ]
    regimes: tuple[Regime, ...] = ("clean", "training")
    return [
        *(estimate(**settings, regime=regime) for estimate, settings in estimates for regime in regimes),
        representations.LayerDistance(occurrences=plan.distance_occurrences),
        representations.ChangeByFrequency(per_bin=plan.frequency_occurrences),
        representations.InfluenceByFrequency(per_bin=plan.frequency_occurrences),
        representations.IdentityNeighbours(k=plan.neighbours, occurrences=plan.neighbour_occurrences),
        representations.PositionNeighbours(k=plan.neighbours),
        representations.ContextNeighbours(k=plan.neighbours),
        representations.TagNeighbours(k=plan.neighbours),
        representations.TokenMap(points=plan.map_points),
        representations.WordGeometry(),
        representations.WordNeighbours(),
        representations.IntraSentence(),
        representations.IntrinsicDimension(),
        representations.DistanceDistribution(),
        representations.Lens(steps=plan.lens_steps, tokens=plan.lens_tokens),
        heads.Confidence(),
        heads.Entropy(),
        heads.PositionalScores(offsets=(-2, -1, 1, 2)),
        heads.SurfaceStatistics(),
        heads.TellingSentences(),
        heads.RelationScores(),
        heads.RareTokenScores(),
        heads.PatternScores(),
        heads.HeadDistance(),
        heads.HeadLayerDistance(),
        heads.Coreference(),
        heads.AttentionByDistance(),
        heads.RetrievalHeads(),
        heads.SpecialGradient(),
        probing.AttentionProbe(sentences=plan.probe_sentences),
        heads.Relevance(sentences=plan.relevance_sentences),
        heads.Importance(sentences=plan.importance_sentences),
        heads.Ablation(sentences=plan.ablation_sentences),
        heads.PruningCurve(sentences=(plan.ablation_sentences + 1) // 2),
        heads.EncoderContext(sentences=plan.context_sentences),
    ]


def wanted_at(
    width: int, measures: Sequence[AbstractMeasure], options: "AnalyzeOptions"
) -> tuple[list[AbstractMeasure], dict[str, list[str]]]:
    """The measures that an analysis of a model of this width runs, and the names of the others by reason."""
    if options.only or options.measures.tables:
        return list(measures), {}
    kept: list[AbstractMeasure] = []
    left_out: dict[str, list[str]] = {}
    for measure in measures:
        if reason := measure.unless_named(width):
            left_out.setdefault(reason, []).append(measure.name)
        else:
            kept.append(measure)
    return kept, left_out


def measures_by_table(measures: Sequence[AbstractMeasure]) -> dict[str, list[AbstractMeasure]]:
    """The measures by the name of their table; several measures may write the same table."""
    tables: dict[str, list[AbstractMeasure]] = {}
    for measure in measures:
        tables.setdefault(measure.name, []).append(measure)
    return tables


def _all_pairs(plan: AnalysisPlan) -> list[PairMeasure]:
    return [
        representations.ModelDistance(occurrences=plan.distance_occurrences),
        representations.SpaceSimilarity(occurrences=plan.distance_occurrences),
    ]
