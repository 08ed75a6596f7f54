"""Plans: strict about names and kinds, the same through TOML, JSON and Python."""

from pathlib import Path

import pytest

from infoflow.foundation import UserError
from infoflow.objectives import MaskedLM, Translation
from infoflow.results import Spec
from infoflow.studies import PRESETS, AnalysisPlan, StudyPlan, pair_measures, standard_measures


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_survive_json(preset: str) -> None:
    plan = StudyPlan.load(preset)
    assert StudyPlan.from_json(plan.to_json()) == plan
    assert plan.retrieval.on or {"causal-lm", "masked-lm", "translation"} <= set(plan.objectives)


def test_presets_differ_in_seeds() -> None:
    assert [len(StudyPlan.load(preset).seeds) for preset in PRESETS] == [1, 3, 3, 1, 1, 1, 3, 1]


def test_a_file_overrides_only_what_it_names(tmp_path) -> None:
    path = tmp_path / "study.toml"
    path.write_text("seeds = [3, 4]\n[training]\nlearning_rate = 1\n")
    plan = StudyPlan.load(path)
    assert plan.seeds == (3, 4)
    assert plan.training.learning_rate == 1.0
    assert plan.corpus == StudyPlan().corpus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sedes = [1]", "no setting sedes"),
        ("[training]\nlr = 1", r"no setting training\.lr"),
        ('[training]\nupdates = "many"', r"training\.updates must be a whole number from 1"),
        ("[training]\nupdates = true", r"training\.updates must be a whole number from 1.* Got true"),
        ('[training]\nschedule = "cosine"', 'training.schedule must be one of "linear"'),
        ("training = 3", r"training must be a table"),
        ("seeds = []", r"seeds must be a list, not empty, .* Got \[\]"),
        ("seeds = [1, 1]", "list of different values"),
        ('objectives = ["translate"]', "No objective is called translate"),
        ('match = "width"', "encoder"),
        ('objectives = ["electra+token-dropout"]', "electra already learns to detect random tokens"),
        (
            'objectives = ["translation+noise"]',
            r"translation\+noise\" names no variant of this plan. Known: token-dropout",
        ),
        (
            'token_dropout = 1.0\nobjectives = ["causal-lm+token-dropout"]',
            "token_dropout must be a number above 0, below 1",
        ),
        ("[model]\nwidth = 65", "multiple of model.heads"),
        ("seeds = [1", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        StudyPlan.load(path)


def test_a_variant_differs_from_its_objective_in_token_dropout_alone() -> None:
    plan = StudyPlan(objectives=("translation", "translation+token-dropout"), token_dropout=0.2)
    assert plan.objective("translation") == Translation()
    assert plan.objective("translation+token-dropout") == Translation(token_dropout=0.2)


def test_a_variant_is_named_in_a_column_of_its_own() -> None:
    plan = StudyPlan(objectives=("translation", "translation+token-dropout"), seeds=(0, 1))
    assert plan.spec("translation") == Spec("translation")
    assert plan.spec("translation+token-dropout") == Spec("translation", "token-dropout", {"token_dropout": 0.1})
    assert [recipe.name for recipe in plan.recipes(["translation+token-dropout"])] == [
        "translation+token-dropout/seed-0",
        "translation+token-dropout/seed-1",
    ]


def test_absent_plan() -> None:
    with pytest.raises(UserError, match="neither a TOML file nor a preset"):
        StudyPlan.load("nothing.toml")


def test_a_plan_names_the_tables_it_wants() -> None:
    plan = AnalysisPlan(tables=("head_entropy", "model_distance"))
    assert [measure.name for measure in standard_measures(plan)] == ["head_entropy"]
    assert [measure.name for measure in pair_measures(plan)] == ["model_distance"]
    assert standard_measures(AnalysisPlan(tables=("task_scores",))) == []
    with pytest.raises(UserError, match="has no table heads"):
        standard_measures(AnalysisPlan(tables=("heads",)))


def test_every_table_that_a_plan_can_name_is_measured_once():
    with pytest.raises(UserError) as refused:
        standard_measures(AnalysisPlan(tables=("heads",)))
    known = str(refused.value).split("Choose among: ")[1].rstrip(".").split(", ")
    made = [(type(one), getattr(one, "regime", None)) for one in standard_measures(AnalysisPlan(tables=tuple(known)))]
    assert len(known) > 50
    assert len(made) == len(set(made))


def test_combinations_that_do_not_exist_are_left_out() -> None:
    plan = StudyPlan(
        objectives=("causal-lm", "masked-lm", "translation", "bart"), architectures=("bert", "gpt2", "albert", "t5")
    )
    assert [recipe.name for recipe in plan.recipes()] == [
        "causal-lm/seed-0",
        "masked-lm/seed-0",
        "translation/seed-0",
        "bart/seed-0",
        "causal-lm-on-gpt2/seed-0",
        "masked-lm-on-albert/seed-0",
        "bart-on-t5/seed-0",
    ]


def test_t5_translates_where_both_languages_are_of_one_vocabulary() -> None:
    asked = {"objectives": ["translation"], "architectures": ["bert", "t5"]}
    for joint, families in ((False, ["bert"]), (True, ["bert", "t5"])):
        plan = StudyPlan.from_json(
            {**asked, "objectives": ["translation", "bart"], "corpus": {"joint_vocabulary": joint}}
        )
        translating = [one for one in plan.recipes() if one.objective.name == "translation"]
        assert [one.architecture.name for one in translating] == families


def test_a_variant_takes_its_options_from_its_table() -> None:
    values = {"objectives": ["masked-lm", "masked-lm+words"], "variants": {"words": {"selection": "whole-word"}}}
    plan = StudyPlan.from_json(values)
    assert plan.objective("masked-lm+words") == MaskedLM(selection="whole-word")
    assert plan.spec("masked-lm+words") == Spec("masked-lm", "words", {"selection": "whole-word"})
    assert StudyPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objectives": ["distillation"]}, "Add masked-lm to objectives"),
        ({"objectives": ["masked-lm"], "architectures": ["bert", "t5"]}, "None of the plan's objectives fits"),
        (
            {"objectives": ["masked-lm"], "model": {"share_layers": False}},
            "model.share_layers is a setting of albert, which is not among the architectures",
        ),
        ({"objectives": ["bart"], "architectures": ["gpt2"]}, "Add one of: bert, plain-bert, t5"),
        (
            {"objectives": ["masked-lm"], "architectures": ["bert", "longformer"], "model": {"positions": 3}},
            "window of 4 tokens for 3 positions",
        ),
        (
            {"objectives": ["translation"], "architectures": ["t5"]},
            r"t5 has a single embedding table[\s\S]*joint_vocabulary = true",
        ),
        ({"objectives": ["bart+x"], "variants": {"x": {"mask": 7}}}, r"bart\.mask must be a number from 0 to 1"),
        ({"objectives": ["bart"], "variants": {"a b": {}}}, "letters, digits and hyphens"),
        ({"objectives": ["electra"], "pruning": {"on": True, "objectives": ["electra"]}}, "single model"),
    ],
)
def test_objectives_that_cannot_be_trained_are_refused(values, message) -> None:
    with pytest.raises(UserError, match=message):
        StudyPlan.from_json(values)


def test_the_preset_of_architectures_trains_each_objective_on_what_can_take_it() -> None:
    plan = StudyPlan.load("architectures")
    trained: dict[str, set[str]] = {}
    for recipe in plan.recipes():
        trained.setdefault(recipe.architecture.name, set()).add(recipe.objective.name)
    assert trained == {
        "bert": set(plan.objectives),
        "albert": {"masked-lm"},
        "gpt2": {"causal-lm"},
        "t5": {"denoise-full", "deshuffling", "bart"},
    }


def test_the_committed_plans_of_the_zoo_are_plans() -> None:
    folder = Path(__file__).parents[2] / "experiments" / "studies" / "zoo"
    plan = StudyPlan.load(folder / "plan.toml")
    assert plan == StudyPlan.load("zoo")
    several = StudyPlan.load(folder / "three-seeds.toml")
    assert len(several.seeds) == 3
    assert {"electra+selected", "translation+token-dropout", "masked-lm+static"} <= set(several.objectives)
