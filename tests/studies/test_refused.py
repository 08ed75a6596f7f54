"""A plan that is refused after its sentences were cut up leaves nothing behind, and what is there stays."""

import pytest

from infoflow.foundation import UserError
from infoflow.objectives import further_objectives
from infoflow.studies import StudyPlan, study, train_model

TASK = {"name": "mine", "train": "missing.tsv"}


def plan(**parts) -> StudyPlan:
    return StudyPlan.from_json(
        {
            "objectives": ["masked-lm"],
            "corpus": {"name": "grammar:300", "vocabulary": 150},
            "model": {"width": 16, "layers": 1, "heads": 2, "feedforward": 32},
            "training": {"updates": 1, "device": "cpu"},
            **parts,
        }
    )


@pytest.mark.parametrize(
    "parts",
    [{"tune": [TASK]}, {"retrieval": {"on": True, "corpus": "missing.json"}}, {"domain": {"corpus": "missing.txt"}}],
    ids=lambda parts: next(iter(parts)),
)
def test_a_refused_plan_leaves_no_folder(parts, tmp_path):
    with pytest.raises(UserError, match=r"missing\."):
        study(plan(**parts), tmp_path / "runs" / "mine", num_processes=1)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_was_there_stays(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(UserError):
        study(plan(tune=[TASK]), tmp_path / "mine", num_processes=1)
    assert (tmp_path / "mine" / "run.json").exists()


def test_what_a_finished_stage_left_stays(tmp_path, monkeypatch):
    def interrupted(stages, run, engine, hint):
        next(iter(stages)).run()
        raise UserError("Enough.")

    monkeypatch.setattr("infoflow.studies._study.run_stages", interrupted)
    with pytest.raises(UserError, match="Enough"):
        study(plan(), tmp_path / "mine", num_processes=1)
    assert list((tmp_path / "mine" / "work" / "training").rglob("model.safetensors"))


@pytest.mark.parametrize("name", further_objectives())
def test_what_reads_passages_is_refused_before_anything_is_prepared(name, tmp_path):
    with pytest.raises(UserError, match=rf"Got {name}, which also reads passages"):
        plan(objectives=["masked-lm", name])
    with pytest.raises(UserError, match=rf"Got {name}, which also reads passages"):
        train_model(name, plan(), 0, tmp_path / "mine")
    assert not list(tmp_path.iterdir())
