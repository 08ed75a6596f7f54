"""Learning curves: the log thinned to stretches whose means lose nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from infoflow.results import LEARNING_CURVES, Recipe, Spec, Subject
from infoflow.studies import learning_curve

SUBJECT = Subject(recipe=Recipe(objective=Spec("causal-lm"), architecture=Spec("bert"), seed=0))


def _log(path: Path, losses: list[float]) -> Path:
    lines = [{"update": 10 * (i + 1), "source_tokens": 100 * (i + 1), "loss": loss} for i, loss in enumerate(losses)]
    lines.insert(3, {"update": 30, "validation_loss": 1.0})  # an evaluation is no training loss
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_every_line_of_the_log_counts_once(tmp_path) -> None:
    losses = list(8 * np.exp(-np.arange(700) / 200))
    curve = learning_curve(_log(tmp_path / "log.jsonl", losses))
    assert len(curve) <= 60
    lengths = np.diff(curve["step"], prepend=0) / 10
    assert lengths.sum() == 700
    assert (curve["value"] * lengths).sum() == pytest.approx(sum(losses))
    assert curve["value"].is_monotonic_decreasing
    assert curve["source_tokens"].iloc[-1] == 70_000
    LEARNING_CURVES.conform(curve.assign(**SUBJECT.keys()))


def test_a_short_log_keeps_its_lines(tmp_path) -> None:
    curve = learning_curve(_log(tmp_path / "log.jsonl", [3.0, 2.0, 1.0]))
    assert curve["value"].tolist() == [3.0, 2.0, 1.0]


def test_without_a_log_there_is_no_curve(tmp_path) -> None:
    assert learning_curve(tmp_path / "log.jsonl").empty
