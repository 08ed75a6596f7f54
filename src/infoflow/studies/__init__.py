"""Study plans, and their resumable execution with all packages."""

from ._analyze import analyze, merge
from ._data import StudyData as StudyData
from ._data import prepare
from ._estimate import estimated
from ._external import AnalyzeOptions as AnalyzeOptions
from ._external import distinct_names, external_scores, external_subject, untrained
from ._forecast import Forecast
from ._graph import Graph as Graph
from ._graph import graph as graph
from ._graph import run_stages as run_stages
from ._measures import light_tables, pair_measures
from ._measures import standard_measures as standard_measures
from ._parts import at_most as at_most
from ._plan import PRESETS
from ._plan import StudyPlan as StudyPlan
from ._plan_sections import AnalysisPlan as AnalysisPlan
from ._plan_sections import CheckpointsPlan as CheckpointsPlan
from ._plan_sections import ContextPlan as ContextPlan
from ._plan_sections import CorpusPlan as CorpusPlan
from ._plan_sections import EnginePlan as EnginePlan
from ._predict import generate as generate
from ._predict import predict_words as predict_words
from ._run import Run as Run
from ._run import check_findings
from ._scores import bleu_scores as bleu_scores
from ._scores import rouge_scores
from ._scores import task_scores as task_scores
from ._study import engine_for as engine_for
from ._study import list_stages, removed_if_refused, run_stage, stage_of, train_model
from ._study import study as study
from ._study_models import StudyModels
from .stages import (
    AbstractStage,
    Check,
    Compare,
    MatchModel,
    MeasureExternal,
    MeasureModel,
    ShowExample,
    matched_weights,
)
from .stages import Retrain as Retrain
from .stages import Train as Train
from .stages._train import learning_curve
