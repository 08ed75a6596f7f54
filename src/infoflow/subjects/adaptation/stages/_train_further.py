"""`train_further`: continue training any compatible model with any objective, on another corpus."""

import dataclasses
import math
from pathlib import Path
from typing import Any

from infoflow.corpus import Corpus
from infoflow.flow import is_first
from infoflow.foundation import current_display, provenance
from infoflow.objectives import AbstractObjective
from infoflow.report import check_output
from infoflow.results import RunFolder
from infoflow.studies._data import Tokenizers, prepare
from infoflow.studies._plan import StudyPlan
from infoflow.studies._plan_sections import ProbingPlan
from infoflow.studies._study import TrainedModel, only_one
from infoflow.studies._study_facts import wall_clock
from infoflow.training import train, usable_device

from ..measures import Parent, extend_vocabulary, load_parent

_KIND = "train-further"
_COPIES = 10  # passes of pairs over the training text, as for a study's models


def train_further(
    objective: str,
    start: str | Path,
    plan: StudyPlan | Path | str = "quick",
    seed: int = 0,
    out: Path | str | None = None,
    new_tokens: int = 0,
) -> TrainedModel:
    """Continue training a model with an objective of the plan, on the plan's corpus, in the folder `out`.

    The model keeps its tokenizer; the optimiser restarts with the plan's schedule and warm-up. Two successive calls
    make two phases: first the domain, then the unlabelled texts of a task. Repeat an interrupted call to continue it.

    Args:
        objective: Objective that suits the model: masked-lm for an encoder with its head, causal-lm for a decoder, ...
        start: A model of a study, or any Hugging Face folder or name.
        plan: Corpus, training and, if the model has no limit of its own, `model.positions`.
        seed: Seed of data order, noise and dropout.
        out: Output folder, with the model in `out/model`. Default: `runs/further/` and the objective.
        new_tokens: Number of tokens that are learned on the corpus and added (`extend_vocabulary`). Each is initialised
            with the mean of its former pieces; existing tokens keep their ids.

    Raises:
        UserError: Objective and model do not fit, or the plan, the corpus or the folder is unsuitable.
    """
    plan = _alone(plan if isinstance(plan, StudyPlan) else StudyPlan.load(plan), objective, seed)
    asked = plan.objective(objective)
    run = RunFolder(out or Path("runs") / "further" / objective)
    if not run.path.exists():
        usable_device(plan.training.device)
    parent = load_parent(start, asked, plan.model.positions)
    with only_one(run):
        check_output(run, _KIND)
        if is_first() and not run.read():
            facts = {"start": Path(str(start)).name, "parent": parent.digest, "new_tokens": new_tokens}
            run.update(kind=_KIND, title=plan.title, plan=plan.to_json(), provenance=provenance(), **facts)
        with wall_clock(run, save=is_first()):
            return _trained(asked, parent, plan, seed, run, new_tokens)


def _trained(
    objective: AbstractObjective, parent: Parent, plan: StudyPlan, seed: int, run: RunFolder, new_tokens: int
) -> TrainedModel:
    extended = [parent]

    def tokenizers(text: Corpus) -> Tokenizers:
        if new_tokens:
            extended.append(with_new_tokens(parent, text, objective, new_tokens))
        return extended[-1].tokenizer, extended[-1].target_tokenizer

    data = prepare(plan, run.path / "work", tokenizers)
    model, reads = extended[-1].module, plan.reads(objective)
    result = train(
        objective,
        dataclasses.replace(plan.training, seed=seed),
        data.arranged(data.train, parent.positions, objective, reads, _COPIES),
        model,
        run.path,
        validation=data.arranged(data.validation, parent.positions, objective, reads),
        parent=parent.digest,
    )
    losses = result.validation_losses
    facts: dict[str, Any] = {name: getattr(result, name) for name in ("updates", "source_tokens", "seconds")}
    facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    facts["validation_loss"] = objective.weighted(losses) if losses else math.nan
    return TrainedModel(folder=result.model, facts=facts)


def with_new_tokens(parent: Parent, text: Corpus, objective: AbstractObjective, num: int) -> Parent:
    """The parent with up to `num` additional tokens, learned on `text`."""
    vocabulary = extend_vocabulary(parent.tokenizer, text.column("text"), num)
    current_display().note(
        f"{len(vocabulary.pieces):,} tokens were learned on {text.name} and added; each starts as the mean of its "
        "pieces."
    )
    return parent.extended(vocabulary, objective)


def _alone(plan: StudyPlan, objective: str, seed: int) -> StudyPlan:
    """The plan without settings that name other objectives."""
    others = {"probing": ProbingPlan(), "architectures": ("bert",)}
    return plan.for_models(objectives=(objective,), seeds=(seed,), **others)
