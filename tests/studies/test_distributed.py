"""A study and an analysis under torchrun: two processes, one run folder, the numbers of one process."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from support.forked import run_here
from support.processes import marked_environment

pytestmark = pytest.mark.slow

SCRIPT = """
import dataclasses, sys
from pathlib import Path
from infoflow.flow import is_first
from infoflow.foundation import set_threads
from infoflow.studies import AnalyzeOptions, StudyPlan, analyze, study
from support.undrawn import undrawn

set_threads(1)
base = Path(sys.argv[1])
plan = StudyPlan.load(sys.argv[2])
with undrawn():  # reports have tests of their own
    run = study(plan, base / "study", num_processes=1)
    options = AnalyzeOptions(corpus="grammar:300", measures=plan.analysis)
    analyze([str(run.path / "models" / "masked-lm" / f"seed-{seed}") for seed in (0, 1)], options, base / "analysis")
"""

ONE_OF_EACH_KIND = ["task_scores", "head_entropy", "layer_distance", "head_ablation", "model_distance"]
"""Streamed, from the sample, with the model run again, and of two models."""


PRUNING = """
[pruning]
on = true
objectives = ["masked-lm"]
scopes = ["encoder-self"]
penalties = [0.1]
updates = 2
greedy = ["importance"]
keep = [4]
roles = false
score_sentences = 20
rank_sentences = 20
"""

CHECKPOINTS = """
[checkpoints]
schedule = "0,3"
light = ["head_entropy", "convergence"]
sentences = 60
occurrences = 300
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* still between 0 and 1")  # after two updates
def test_two_processes_write_the_folder_of_one(tiny_toml: str, tmp_path: Path, no_drawing) -> None:
    settings = 'objectives = ["masked-lm"]\nseeds = [0, 1]'
    # Without dropout: its noise is drawn per process, so weights would differ.
    text = tiny_toml.replace("seeds = [0]", settings).replace("[model]", "[model]\ndropout = 0.0")
    fewer = f"[analysis]\ntables = {json.dumps(ONE_OF_EACH_KIND)}"
    (tmp_path / "tiny.toml").write_text(text.replace("[analysis]", fewer) + PRUNING + CHECKPOINTS)
    (tmp_path / "script.py").write_text(SCRIPT)
    script, plan = tmp_path / "script.py", tmp_path / "tiny.toml"
    run_here(script, tmp_path / "one", plan)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launcher, script, tmp_path / "two", plan],
        timeout=900,
        capture_output=True,
        text=True,
        env=marked_environment(tmp_path),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for kind in ("study", "analysis"):
        assert (tmp_path / "two" / kind / "report.html").exists()
        names = {path.name for path in (tmp_path / "one" / kind / "tables").glob("*.parquet")}
        assert names == {path.name for path in (tmp_path / "two" / kind / "tables").glob("*.parquet")}
    for name in set(ONE_OF_EACH_KIND) - {"head_ablation"} | {"pruning", "head_entropy_over_training"}:
        alone, together = (
            pd.read_parquet(tmp_path / n / "study" / "tables" / f"{name}.parquet") for n in ("one", "two")
        )
        pd.testing.assert_frame_equal(
            alone.drop(columns="replicates"), together.drop(columns="replicates"), rtol=1e-3, atol=1e-4
        )
