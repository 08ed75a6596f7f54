"""`train_model`: one matched model of a plan, without the rest of the study."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.engine import InTurn
from infoflow.flow import is_first
from infoflow.foundation import UserError, provenance
from infoflow.results import RunFolder
from infoflow.training import usable_device

from ._clock import wall_clock
from ._graph import Graph, graph
from ._plan import StudyPlan
from ._plan_sections import ContextPlan, PruningPlan
from ._retrieval_plan import RetrievalPlan
from ._run_stages import run_stages
from ._study import only_one
from ._transplant_plan import TransplantPlan
from .stages import Keep, Record, Train


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A trained model and what it cost."""

    folder: Path  # plain Hugging Face folder
    facts: dict[str, Any]  # updates, tokens, seconds, parameters, validation loss
    checkpoints: Path | None = (
        None  # where those of `[checkpoints]` lie, a plain folder each; None: none were asked for
    )


def train_model(
    objective: str, plan: StudyPlan | Path | str = "quick", seed: int = 0, out: Path | str | None = None
) -> TrainedModel:
    """Train one model of a plan, or continue it, in the run folder `out` (default: `runs/` and the objective).

    A study of the same plan in the same folder takes the model over instead of training it again.

    Raises:
        UserError: The objective is unknown, or the plan, the corpus or the folder does not allow it.
    """
    plan = plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan)
    # What names other objectives of the plan is left out with them.
    others = {
        "pairs": (),
        "pruning": PruningPlan(),
        "transplant": TransplantPlan(),
        "context": ContextPlan(),
        "retrieval": RetrievalPlan(),
    }
    plan = dataclasses.replace(plan, objectives=(objective,), seeds=(seed,), **others)
    run = RunFolder(out or Path("runs") / objective)
    if not run.path.exists():  # what is trained already needs no device
        usable_device(plan.training.device)
    with only_one(run):
        kind = run.read().get("kind", "study")
        if kind != "study":
            raise UserError(f"{run.path} holds a run of another kind ({kind}). Choose another --out.")
        if is_first() and not run.read():  # a study's own plan stays
            run.update(kind="study", title=plan.title, plan=plan.to_json(), provenance=provenance())
        with wall_clock(run, save=is_first()):
            stages = graph(plan, run)
            (training,) = stages.of(Train)
            needed = [training, *stages.of(Keep), *stages.of(Record)]
            run_stages(Graph(stages=needed, folder=run), run, InTurn(), title="Training")
            models, recipe = training.models, training.recipe
            checkpoints = models.snapshots(recipe).folder if plan.checkpoints.on else None
            return TrainedModel(facts=training.facts(), folder=models.published(recipe), checkpoints=checkpoints)
