"""`train_model`: one matched model of a plan, without the rest of the study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.engine import InTurn
from infoflow.flow import is_first
from infoflow.foundation import provenance
from infoflow.report import check_output
from infoflow.results import RunFolder
from infoflow.training import usable_device

from ._clock import wall_clock
from ._graph import Graph, graph
from ._plan import StudyPlan
from ._run_stages import run_stages
from ._study import only_one
from .stages import Train


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A trained model and its cost."""

    folder: Path  # plain Hugging Face folder
    facts: dict[str, Any]  # updates, tokens, seconds, parameters, validation loss
    checkpoints: Path | None = (
        None  # folders of the `[checkpoints]`, plain Hugging Face folders; None: none were requested
    )


def train_model(
    objective: str, plan: StudyPlan | Path | str = "quick", seed: int = 0, out: Path | str | None = None
) -> TrainedModel:
    """Train or continue one model of a plan in the run folder `out` (default: `runs/` and the objective).

    A study of the same plan in the same folder reuses the model instead of training it again. If an objective learns
    from a teacher, as distillation does, the teacher is trained first.

    Raises:
        UserError: The objective is unknown, or the plan, the corpus or the folder is unsuitable.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    teacher = plan.objective(objective).teacher  # is trained first, in the same folder
    objectives = (teacher, objective) if teacher else (objective,)
    plan = plan.for_models(objectives=objectives, seeds=(seed,))
    run = RunFolder(out or Path("runs") / objective)
    if not run.path.exists():  # an existing trained model needs no device
        usable_device(plan.training.device)
    with only_one(run):
        check_output(run, "study")
        if is_first() and not run.read():  # keep a study's own plan
            run.update(kind="study", title=plan.title, plan=plan.to_json(), provenance=provenance())
        with wall_clock(run, save=is_first()):
            stages = graph(plan, run)
            trainings = stages.of(Train)
            training = trainings[-1]
            needed = [*trainings, *(stage for stage in stages if stage.with_training)]
            run_stages(Graph(stages=needed, folder=run), run, InTurn(), title="Training")
            models, recipe = training.models, training.recipe
            checkpoints = models.snapshots(recipe).folder if plan.checkpoints.on else None
            return TrainedModel(facts=training.facts(), folder=models.published(recipe), checkpoints=checkpoints)
