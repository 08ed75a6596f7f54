"""Two processes (gloo) train a model with passages to what one process makes of it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from retrieval.tiny_arms import tiny_arm
from support.forked import run_here, run_together

from infoflow.training import read_log

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "trained_together.py"


def left(folder: Path, rank: int = 0) -> tuple[dict, dict[str, torch.Tensor]]:
    return json.loads((folder / f"{rank}.json").read_text()), torch.load(folder / f"{rank}.pt")


def trained(folder: Path, case: str) -> tuple[Path, Path]:
    one, two = folder / "one", folder / "two"
    run_here(SCRIPT, one, case)
    run_together(SCRIPT, two, case)
    return one, two


def same_weights(folder: Path, other: Path) -> None:
    (_, weights), (_, first), (_, second) = left(folder), left(other, 0), left(other, 1)
    for name, value in weights.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-3, atol=1e-4)  # of updates of 2e-3


def same_log(folder: Path, other: Path) -> None:
    one, two = (read_log(path / "run" / "log.jsonl") for path in (folder, other))
    for name in ("loss", "gradient_norm", "source_tokens", "supervised_tokens"):
        assert [line[name] for line in two] == pytest.approx([line[name] for line in one], rel=1e-3), name


@pytest.mark.parametrize("case", ["learned", "idle", "bm25", "null-share", "cloze"])
def test_two_processes_train_to_the_weights_of_one(case, tmp_path):
    """A retriever that is frozen at first and not asked for null readings; updates in which one process has no query;
    a prior; an arm that skips most queries; passages that are wrong for each other, of which each process must see all.
    """
    one, two = trained(tmp_path, case)
    same_weights(one, two)
    same_log(one, two)
    (alone, _), (first, _), (second, _) = left(one), left(two, 0), left(two, 1)
    assert alone["supervised"] == first["supervised"] == second["supervised"]
    assert (first["watched"], second["watched"]) == (True, True)
    if case == "cloze":
        return
    assert not set(first["chosen"]) & set(second["chosen"])
    assert {**first["chosen"], **second["chosen"]} == alone["chosen"]
    for column, values in alone["learning"].items():
        for other in (first, second):
            np.testing.assert_allclose(other["learning"][column], values, rtol=1e-3, atol=1e-5, err_msg=column)


def test_a_frozen_retriever_stays_to_the_bit(tmp_path):
    """It has no gradient, not one of zeros: weights would decay."""
    run_together(SCRIPT, tmp_path, "frozen")
    begun, (_, ended) = tiny_arm("retrieve-learned")[1].state_dict(), left(tmp_path)
    changed = {name.split(".")[0] for name, value in begun.items() if not torch.equal(value, ended[name])}
    assert changed == {"reader"}


def test_two_processes_that_were_interrupted_end_with_the_same_weights(tmp_path):
    run_together(SCRIPT, tmp_path / "whole", "learned")
    run_together(SCRIPT, tmp_path / "cut", "learned", "6")
    assert not (tmp_path / "cut" / "0.json").exists()
    run_together(SCRIPT, tmp_path / "cut", "learned")
    for rank in (0, 1):
        (whole, weights), (cut, others) = left(tmp_path / "whole", rank), left(tmp_path / "cut", rank)
        assert all(torch.equal(value, others[key]) for key, value in weights.items())
        assert str(cut["learning"]) == str(whole["learning"])  # NaN among them
