"""Plans: strict about names and kinds, the same through TOML, JSON and Python."""

import pytest

from infoflow.foundation import UserError
from infoflow.studies import PRESETS, StudyPlan


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_load_and_survive_json(preset: str) -> None:
    plan = StudyPlan.load(preset)
    assert StudyPlan.from_json(plan.to_json()) == plan
    assert plan.objectives == ("causal-lm", "masked-lm", "translation")


def test_presets_differ_in_seeds() -> None:
    assert [len(StudyPlan.load(preset).seeds) for preset in PRESETS] == [1, 3, 3]


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
        ('[training]\nupdates = "many"', r"training\.updates must be int"),
        ("[training]\nupdates = true", r"training\.updates must be int"),
        ('[training]\nschedule = "cosine"', "training.schedule must be linear or"),
        ("training = 3", r"training must be a table"),
        ("seeds = []", "list of different values"),
        ("seeds = [1, 1]", "list of different values"),
        ('objectives = ["translate"]', "No objective is called 'translate'"),
        ('match = "width"', "encoder"),
        ("[model]\nwidth = 65", "multiple of heads"),
        ("seeds = [1", "not valid TOML"),
    ],
)
def test_mistakes_are_named(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "study.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        StudyPlan.load(path)


def test_absent_plan() -> None:
    with pytest.raises(UserError, match="neither a TOML file nor a preset"):
        StudyPlan.load("nothing.toml")
