"""Revisions of models on the hub: from a cache without network, and paths that hold an @ themselves."""

import shutil
from pathlib import Path

import pytest
import torch

from infoflow.flow import accepted_model
from infoflow.foundation import UserError
from infoflow.models import at_revision, load_model
from infoflow.studies import analyze

NAME = "someone/tiny"


@pytest.fixture(scope="module")
def states(matched_models, tmp_path_factory) -> dict[str, Path]:
    """Two states of one model, with its tokenizer."""
    folders, model = {}, matched_models["masked-lm"]
    for revision, scale in (("main", 1.0), ("step1000", 2.0)):
        folders[revision] = tmp_path_factory.mktemp("states") / revision
        module = type(model.module)(model.module.config)
        module.load_state_dict({name: scale * value for name, value in model.module.state_dict().items()})
        module.save_pretrained(folders[revision])
        model.tokenizer.save_pretrained(folders[revision])
    return folders


@pytest.fixture
def cache(states, tmp_path, monkeypatch) -> Path:
    """The hub's cache with both revisions, and no network."""
    home = tmp_path / "cache" / "models--someone--tiny"
    for commit, (revision, folder) in zip(("a" * 40, "b" * 40), states.items(), strict=True):
        shutil.copytree(folder, home / "snapshots" / commit)
        (home / "refs").mkdir(exist_ok=True)
        (home / "refs" / revision).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def weight(model) -> torch.Tensor:
    return model.module.get_input_embeddings().weight


def test_each_revision_of_a_cached_model_is_its_own(cache, states):
    for revision in ("main", "step1000", "b" * 40):
        found = load_model(f"{NAME}@{revision}")
        assert found.name == f"{NAME}@{revision}"
        assert torch.equal(weight(found), weight(load_model(states["main" if revision == "main" else "step1000"])))
        assert found.tokenizer is not None
    assert load_model(NAME).digest == load_model(f"{NAME}@main").digest != load_model(f"{NAME}@step1000").digest
    assert load_model(states["main"], tokenizer=f"{NAME}@step1000").tokenizer is not None


def test_a_revision_can_be_said_beside_the_name(cache, states):
    assert load_model(NAME, revision="step1000").name == f"{NAME}@step1000"
    for source in (f"{NAME}@main", states["main"], str(states["main"]), load_model(states["main"]).module):
        with pytest.raises(UserError, match=r"A revision needs a name on the model hub"):
            load_model(source, revision="step1000")


def test_a_revision_that_is_missing_is_told_with_those_that_are_there(cache):
    with pytest.raises(UserError) as told:
        load_model(f"{NAME}@step9")
    assert str(told.value).startswith(f"Revision step9 of {NAME} is not in the cache")
    assert "In the cache of this machine: main, step1000." in str(told.value)
    with pytest.raises(UserError, match="none of its revisions"):
        load_model("someone/other@step9")


@pytest.mark.parametrize("name", [f"{NAME}@", f"{NAME}@../x", f"{NAME}@a b", "@main", f"{NAME}@/x"])
def test_what_can_be_no_revision_is_refused(cache, name):
    with pytest.raises(UserError, match=r"must be followed by a branch, tag or commit|No model folder"):
        load_model(name)


def test_a_folder_with_an_at_is_a_folder(cache, states, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(states["step1000"], "tiny@main")
    shutil.copytree(states["step1000"], "someone/tiny@main")
    for source in ("tiny@main", f"{NAME}@main", Path("tiny@main"), str(tmp_path / "tiny@main")):
        assert torch.equal(weight(load_model(source)), weight(load_model(states["step1000"])))
    with pytest.raises(UserError, match="No model folder at"):
        load_model("./other@main")


def test_a_name_is_cut_at_its_last_at():
    assert at_revision("a@b/c@d") == ("a@b/c", "d")
    assert at_revision("a@") == ("a", "")
    assert at_revision("a") == ("a", None)


def test_commands_take_revisions(cache, tmp_path):
    assert accepted_model(f"{NAME}@step1000").name == f"{NAME}@step1000"
    options = {"corpus": "grammar:40", "only": "head_entropy", "control": False}
    run = analyze([f"{NAME}@main", f"{NAME}@step1000"], out=tmp_path / "run", **options)
    assert set(run.tables["head_entropy"]["model"]) == {"tiny@main", "tiny@step1000"}
    assert run.folder.read()["plan"]["models"] == [f"{NAME}@main", f"{NAME}@step1000"]
