"""A plan and its resumable execution over all rooms."""

from ._analyze import analyze as analyze
from ._analyze import merge as merge
from ._check_findings import check_findings as check_findings
from ._corpora import compare_recordings as compare_recordings
from ._engines import stage_of as stage_of
from ._given import AnalyzeOptions as AnalyzeOptions
from ._graph import Graph as Graph
from ._graph import graph as graph
from ._plan import PRESETS as PRESETS
from ._plan import AlignmentPlan as AlignmentPlan
from ._plan import AnalysisPlan as AnalysisPlan
from ._plan import CorpusPlan as CorpusPlan
from ._plan import DynamicsPlan as DynamicsPlan
from ._plan import EnginePlan as EnginePlan
from ._plan import PruningPlan as PruningPlan
from ._plan import StudyPlan as StudyPlan
from ._run import Run as Run
from ._study import study as study
from ._train_model import TrainedModel as TrainedModel
from ._train_model import train_model as train_model
