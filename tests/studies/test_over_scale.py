"""Claims over scale from run folders (with invented tables): what is written, told and refused."""

from pathlib import Path

import pytest
from invented_scales import write_study
from undrawn import undrawn


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("studies")
    scales = [("small", 0.6, 3e5), ("middle", 0.9, 1e6), ("large", 1.2, 3e6)]
    return [write_study(folder / name, fall, tokens, batch_tokens=512) for name, fall, tokens in scales]


def test_tables_and_report_lie_in_a_folder_of_their_own(studies, tmp_path: Path) -> None:
    from infoflow.studies import over_scale

    with undrawn():
        run = over_scale(studies, tmp_path / "out")
        again = over_scale(studies[::-1], tmp_path / "out")
    assert set(run.tables) == {"findings", "findings_over_scale", "trends"}
    assert again.tables["trends"].equals(run.tables["trends"])
    assert {one["run"] for one in run.folder.read()["runs"]} == {"small", "middle", "large"}
    assert "trend" in run.findings
    own = run.tables["findings_over_scale"]
    assert set(own["tokens"].dropna()) == {3e5, 1e6, 3e6}
    assert run.folder.report.exists()


def test_what_else_differs_is_told(studies, tmp_path: Path) -> None:
    from infoflow.studies import over_scale

    other = write_study(tmp_path / "other", 0.9, 1e7, batch_tokens=99, updates=5)
    with undrawn(), pytest.warns(UserWarning, match=r"small and other differ in training.batch_tokens, not only"):
        run = over_scale([studies[0], other], tmp_path / "out")
    assert run.folder.read()["warnings"] == ["small and other differ in training.batch_tokens, not only in scale."]


def test_folders_are_checked(studies, tmp_path: Path) -> None:
    from infoflow.foundation import UserError
    from infoflow.studies import check_findings, over_scale

    with pytest.raises(UserError, match="run of another kind"):
        over_scale(studies, studies[0])
    with pytest.raises(UserError, match=r"Got 1\."):
        over_scale(studies[:1], tmp_path / "out")
    with undrawn():
        run = over_scale(studies[:2], tmp_path / "out")
    with pytest.raises(UserError, match="compares several runs"):
        check_findings(run.path)
