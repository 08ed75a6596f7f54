"""Recordings on several corpora, compared from the folders of their studies (with invented tables)."""

from pathlib import Path

import pytest
from dynamics.synthetic import Recordings, write_run

from infoflow.foundation import UserError
from infoflow.subjects.allocation.stages import compare_recordings


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> list[Path]:
    folder, plan = tmp_path_factory.mktemp("studies"), {"objectives": ["causal-lm"], "seeds": [0, 1, 2]}
    for number, name in enumerate(("small", "large")):
        run = write_run(folder / name, Recordings(corpus=number))
        run.update(kind="study", plan={**plan, "corpus": {"name": name}}, corpus={"name": name, "sentences": 10})
    return [folder / "small", folder / "large"]


def test_studies_are_compared_in_a_folder_of_their_own(studies, tmp_path: Path) -> None:
    run = compare_recordings(studies, tmp_path / "both")
    assert "Does the corpus affect which parts do the learning?" in run.folder.report.read_text()
    assert list(run.findings["id"]) == ["dynamics:V3"]
    assert set(run.tables["task_scores"]["corpus"]) == {"small", "large"}
    assert run.tables["task_scores"]["model"].str.startswith(("small/", "large/")).all()
    assert run.folder.read()["warnings"] == []


def test_what_else_differs_is_told(studies, tmp_path: Path) -> None:
    other = write_run(tmp_path / "longer", Recordings(corpus=2))
    other.update(kind="study", plan={"objectives": ["causal-lm"], "seeds": [0, 1, 2], "training": {"updates": 9}})
    with pytest.warns(UserWarning, match="differ in training"):
        run = compare_recordings([studies[0], other.path], tmp_path / "both")
    assert run.folder.read()["warnings"] == ["longer and small differ in training, not only in the corpus."]


def test_folders_are_checked(studies, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must have different names\. Got small, small"):
        compare_recordings([studies[0], studies[0]], tmp_path / "both")
    with pytest.raises(UserError, match="at least two"):
        compare_recordings(studies[:1], tmp_path / "both")
    with pytest.raises(UserError, match="is not a run folder"):
        compare_recordings([*studies, tmp_path / "nowhere"], tmp_path / "both")
    with pytest.raises(UserError, match="run of another kind"):
        compare_recordings(studies, studies[0])
