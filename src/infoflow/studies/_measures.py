"""The measures of a study and of `infoflow analyze`: by default, by name, and requested by sections of subjects."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infoflow import heads, representations
from infoflow._subjects import provided
from infoflow.flow import AbstractMeasure, PairMeasure, Regime, describe_measure
from infoflow.foundation import UserError, did_you_mean
from infoflow.results import TABLES, TASK_SCORES

from ._plan import StudyPlan
from ._plan_sections import AnalysisPlan

if TYPE_CHECKING:
    from ._external import AnalyzeOptions


SCORES_ONLY = "task_scores"
"""The name in `AnalysisPlan.tables` for only the scores, which every study has."""

_MORE_INFORMATION = (
    representations.USABLE_INFORMATION_MLP.name,
    representations.MUTUAL_INFORMATION_WITHOUT_POSITION.name,
)
_BY_NAME = (heads.HEAD_BY_DISTANCE.name, heads.HEAD_RETRIEVAL.name)  # tables about long texts
_MOST_CLUSTERS = 10_000  # the published number, for when training sentences are read too


def requested_measures(settings: Any) -> list[AbstractMeasure]:
    """The measures that the subjects' sections of a plan, or of the options of an analysis, request."""
    return [measure for request in provided("stages", "requested") for measure in request(settings)]


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
    elsewhere = [name for own in provided("measures", "OF_CHECKPOINTS") for name in own]
    named_measures(
        replace(plan.analysis, tables=()),
        [name for name in wanted if name not in elsewhere],
        "checkpoints.light and heavy",
        elsewhere,
    )
    for check in provided("stages", "check_checkpoints"):
        check(plan, wanted)
    return wanted


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
        (representations.UsableInformationMLP, usable),
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
        heads.AttentionProbe(sentences=plan.probe_sentences),
        heads.Relevance(sentences=plan.relevance_sentences),
        heads.Importance(sentences=plan.importance_sentences),
        heads.Ablation(sentences=plan.ablation_sentences),
        heads.PruningCurve(sentences=(plan.ablation_sentences + 1) // 2),
        heads.EncoderContext(sentences=plan.context_sentences),
    ]


def wanted_at(
    width: int, measures: Sequence[AbstractMeasure], options: "AnalyzeOptions"
) -> tuple[list[AbstractMeasure], dict[str, list[str]]]:
    """The measures that an analysis of a model of this width runs, and the names of those left out, by the reason."""
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
