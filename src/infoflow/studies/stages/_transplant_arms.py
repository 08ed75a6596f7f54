"""The arms of a transplant: what takes the place of a fresh model's heads, and whether it stays as it was put in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from infoflow.foundation import digest
from infoflow.heads import ARMS, TRANSPLANT_CURVES, Head, HeadScore, drawn_heads, specialised_heads
from infoflow.results import Recipe

from .._plan import StudyPlan
from .._seeds import derived_seed
from .._study_models import StudyModels

NONE, SPECIALISED, RANDOM, SHUFFLED = ARMS

_VERSION = 1  # raise when the same plan trains or scores other fresh models


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One fresh model of a seed."""

    name: str  # one of `ARMS`
    frozen: bool
    draw: int = 0

    def __str__(self) -> str:
        draw = f" {self.draw}" if self.name == RANDOM else ""
        return f"{self.name}{draw}{', frozen' if self.frozen else ''}"

    @property
    def needs_heads(self) -> bool:
        """Whether it is another one than the fresh model as it is."""
        return self.name != NONE or self.frozen


def arms(plan: StudyPlan) -> list[Arm]:
    """Those that the plan asks for, of every model."""
    found = list[Arm]()
    for frozen in plan.transplant.frozen:
        for name in ARMS:
            draws = plan.transplant.random_draws if name == RANDOM else 1
            found += [Arm(name=name, frozen=frozen, draw=draw) for draw in range(draws)]
    return found


def fresh_recipe(recipe: Recipe) -> Recipe:
    """The fresh model of a trained one's seed: first weights, order of batches, noise and dropout are of another seed,
    from 2³¹ on, which the trained one's alone gives. All its arms share them."""
    return replace(recipe, seed=derived_seed("fresh-model", recipe.seed))


def specialised(plan: StudyPlan, scores: Sequence[HeadScore]) -> list[Head]:
    """The donor's heads that are put in, the first choice first."""
    asked = plan.transplant
    return specialised_heads(scores, asked.num_heads(len(scores)), asked.choose)


def heads_of(plan: StudyPlan, recipe: Recipe, scores: Sequence[HeadScore], arm: Arm) -> list[Head]:
    """The heads of an arm, in the donor and in the fresh model."""
    chosen = specialised(plan, scores)
    if arm.name == RANDOM:
        return drawn_heads([one.head for one in scores], chosen, arm.draw, recipe.seed)
    return chosen if arm.needs_heads else []


def scores_key(models: StudyModels, recipe: Recipe) -> str:
    """What the scores of the donor and of its heads depend on."""
    asked, analysis = models.plan.transplant, models.plan.analysis
    ranked_on = [asked.scope, asked.rank_sentences, asked.role_sentences if "roles" in asked.choose else None]
    scored_on = [asked.metric, asked.score_sentences, analysis.sentences, analysis.beams]
    return digest([_VERSION, "scores", models.train_key(recipe), ranked_on, scored_on])


def training_key(models: StudyModels, recipe: Recipe, arm: Arm) -> str:
    """What the weights of an arm's fresh model depend on, beside which of its updates are kept."""
    asked = models.plan.transplant
    settings: list[object] = [asked.num_updates(models.plan.training)]
    if arm.needs_heads:
        chosen = [asked.scope, asked.heads, asked.choose, asked.rank_sentences, asked.role_sentences]
        settings += [models.train_key(recipe), chosen, arm.name, arm.frozen, arm.draw]
    return digest([_VERSION, "training", models.train_key(fresh_recipe(recipe)), settings])


def curve_key(models: StudyModels, recipe: Recipe, arm: Arm) -> str:
    """What the learning curve of an arm depends on."""
    schedule = models.plan.transplant.schedule
    parts = [training_key(models, recipe, arm), str(arm), scores_key(models, recipe), schedule]
    return digest([_VERSION, TRANSPLANT_CURVES.version, parts])


def arm_keys(arm: Arm) -> Mapping[str, object]:
    """Its values in the columns that name it."""
    return {"arm": arm.name, "frozen": arm.frozen, "draw": arm.draw}
