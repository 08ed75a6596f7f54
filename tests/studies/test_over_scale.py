"""Claims over scale from run folders (with invented tables): what is written, told and refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.invented_scales import REPLICATES, keys, write_study
from support.undrawn import undrawn

from infoflow.foundation import UserError
from infoflow.over_training import NGRAM_AGREEMENT
from infoflow.results import RunFolder
from infoflow.studies import check_findings
from infoflow.subjects.over_scale.stages import over_scale
from infoflow.training import TrainConfig, learning_rate_shares, over_training


@pytest.fixture(scope="module")
def studies(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("studies")
    scales = [("small", 0.6, 3e5), ("middle", 0.9, 1e6), ("large", 1.2, 3e6)]
    return [write_study(folder / name, fall, tokens, batch_tokens=512) for name, fall, tokens in scales]


def test_tables_and_report_lie_in_a_folder_of_their_own(studies, tmp_path: Path) -> None:
    with undrawn():
        run = over_scale(studies, tmp_path / "out")
        again = over_scale(studies[::-1], tmp_path / "out")
    assert set(run.tables) == {"findings", "findings_by_run", "findings_over_scale", "trends"}
    assert again.tables["trends"].equals(run.tables["trends"])
    assert {one["run"] for one in run.folder.read()["runs"]} == {"small", "middle", "large"}
    assert "trend" in run.findings
    own = run.tables["findings_over_scale"]
    assert set(own["tokens"].dropna()) == {3e5, 1e6, 3e6}
    assert run.folder.report.exists()


def test_what_else_differs_is_told(studies, tmp_path: Path) -> None:
    other = write_study(tmp_path / "other", 0.9, 1e7, batch_tokens=99, updates=5)
    with undrawn(), pytest.warns(UserWarning, match=r"small and other differ in training.batch_tokens, not only"):
        run = over_scale([studies[0], other], tmp_path / "out")
    assert run.folder.read()["warnings"] == ["small and other differ in training.batch_tokens, not only in scale."]


def test_folders_are_checked(studies, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="run of another kind"):
        over_scale(studies, studies[0])
    with pytest.raises(UserError, match=r"Got 1\."):
        over_scale(studies[:1], tmp_path / "out")
    with undrawn():
        run = over_scale(studies[:2], tmp_path / "out")
    with pytest.raises(UserError, match="is a comparison of several runs"):
        check_findings(run.path)


def warmed_up(path: Path, warmup: int, minimum: int, **how) -> Path:
    """A study whose divergence from unigrams is least at that update."""
    steps = [0, *sorted({round(2 ** (power / 12)) for power in range(121)})]  # much finer than a factor of 1.5
    training = {"updates": 1024, "warmup": warmup, "batch_tokens": how.get("batch_tokens", 512)}
    write_study(path, 0.6, 3e5, **training)
    shares = learning_rate_shares(TrainConfig(**training), steps)
    near = min(steps[1:], key=lambda step: abs(step - minimum))
    rows = []
    for seed in (0, 1, 2):
        for update, share in zip(steps, shares, strict=True):
            value = 1.0 + abs(np.log2(max(update, 0.5) / near))
            clocks = {"tokens": 1.0, "progress": update / 1024, "lr_share": share, "same_as": -1}
            place = {"order": 1, "context": "before", "measure": "kl_from_ngram", "corpus": "training"}
            numbers = {"value": value, "low": value, "high": value, "baseline": 5.0, "count": 9}
            rows.append(
                {**keys(seed, update > 0, update), **clocks, **place, **numbers, "replicates": [value] * REPLICATES}
            )
    RunFolder(path).tables.write(pd.DataFrame(rows), over_training(NGRAM_AGREEMENT))
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("later", "verdict"), [(64, "holds"), (32, "fails")])
def test_two_studies_that_differ_in_their_warm_up_decide_the_claim_about_it(tmp_path, later: int, verdict: str) -> None:
    pair = [warmed_up(tmp_path / "short", 128, 32), warmed_up(tmp_path / "long", 512, later)]
    with undrawn(), pytest.warns(UserWarning, match=r"differ in training.warmup, not only"):
        run = over_scale(pair, tmp_path / "out")
    row = run.tables["findings"].set_index("id").loc["time:T19"]
    assert row["verdict"] == verdict, row["note"]
    assert row["run"] == "short and long"
    stages = run.tables["stages_by_warmup"]
    third = write_study(tmp_path / "third", 0.6, 1e6, batch_tokens=512)
    with undrawn(), pytest.warns(UserWarning, match="not only"):
        later_on = over_scale([run.path, third], run.path)  # the comparison grows where it lies
    assert set(later_on.tables["findings_over_scale"]["run"]) == {"short", "long", "third"}
    assert later_on.tables["findings"].set_index("id").loc["time:T19"].drop("trend").equals(row.drop("trend"))
    assert later_on.tables["stages_by_warmup"].equals(stages)
    assert "next seed with the same warm-up" in row["note"]
    assert set(run.tables["stages_by_warmup"]["warmup"]) == {128}


def test_studies_that_differ_in_more_than_the_warm_up_do_not(tmp_path) -> None:
    pair = [warmed_up(tmp_path / "short", 128, 32), warmed_up(tmp_path / "long", 512, 64, batch_tokens=99)]
    with undrawn(), pytest.warns(UserWarning, match="not only in scale"):
        run = over_scale(pair, tmp_path / "out")
    row = run.tables["findings"].set_index("id").loc["time:T19"]
    assert (row["verdict"], "warm-up alone" in row["reason"]) == ("not testable here", True)
    assert "stages_by_warmup" not in run.tables
