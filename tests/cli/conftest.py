"""A tiny study, and the command line in this process.

Imports of infoflow stay inside fixtures: the hook that checks it comes first.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

PLAN = """\
title = "Tiny"
objectives = ["causal-lm", "masked-lm"]
[corpus]
name = "grammar:600"
vocabulary = 150
validation = 0.1
test = 0.2
[model]
width = 16
layers = 2
heads = 2
feedforward = 32
[training]
updates = 40
batch_tokens = 256
log_every = 1
save_every = 5
[analysis]  # one table of each kind: of a pass, of a sample of tokens, of single sentences, of pairs of models
tables = ["task_scores", "head_confidence", "mutual_information", "head_ablation", "model_distance"]
occurrences = 400
types = 30
clusters = 20
clusterings = 1
distance_occurrences = 400
ablation_sentences = 6
"""
_SMALL = {
    "clusters": 20,
    "types": 30,
    "occurrences": 400,
    "clusterings": 1,
    "distance_occurrences": 400,
    "neighbour_occurrences": 400,
    "neighbours": 5,
    "frequency_occurrences": 200,
    "lens_steps": 4,
    "relevance_sentences": 4,
    "importance_sentences": 20,
    "ablation_sentences": 6,
    "probe_sentences": 30,
}


_MAY_BE_LONG = re.compile(r"(^|: |infoflow findings )\S+$| -m pip install ")  # a path, or a command to be pasted


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def infoflow(capsys, monkeypatch, tmp_path) -> Callable[..., Answer]:
    """`infoflow ARGUMENTS...` in an empty folder, in this process."""
    from infoflow.cli import run

    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path) -> Answer:
        code = run([str(argument) for argument in arguments])
        answer = Answer(code, *capsys.readouterr())
        # help has the terminal's width
        lines = [] if {"--help"} & {*map(str, arguments)} or not arguments else answer.out.splitlines()
        wide = [line for line in lines if len(line) > 100 and not _MAY_BE_LONG.search(line)]
        assert not wide, f"output is at most 100 columns wide: {wide[0]}"
        return answer

    return call


@pytest.fixture
def plan(tmp_path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(PLAN)
    return path


@pytest.fixture(scope="session")
def finished(built_once) -> Path:
    """The run folder of the tiny study, done without an interruption. Tests do not write to it."""
    from infoflow.cli import run

    def build(folder: Path) -> None:
        folder.mkdir()
        (folder / "tiny.toml").write_text(PLAN)
        assert run(["study", str(folder / "tiny.toml"), "--processes=1", f"--out={folder / 'run'}", "--log=plain"]) == 0

    return built_once("command-line-study", build) / "run"


@pytest.fixture
def small(no_drawing) -> list[str]:
    """Options of an analysis that takes a second."""
    return [
        "--corpus=grammar:200",
        "--log=plain",
        *(f"--set=analysis.{name}={value}" for name, value in _SMALL.items()),
    ]


@pytest.fixture(scope="session")
def trained(built_once) -> Callable[[str], Path]:
    """The folder of a model of the tiny study, trained by itself."""
    from infoflow.studies import train_model

    def model(objective: str) -> Path:
        def build(folder: Path) -> None:
            folder.mkdir()
            (folder / "tiny.toml").write_text(PLAN)
            train_model(objective, folder / "tiny.toml", out=folder / "run")

        return built_once(f"command-line-{objective}", build) / "run" / "models" / objective / "seed-0"

    return model


@pytest.fixture
def masked_lm(trained) -> Path:
    return trained("masked-lm")


@pytest.fixture
def causal_lm(trained) -> Path:
    return trained("causal-lm")
