"""`infoflow tune`."""

from pathlib import Path

import pytest

from infoflow.corpus import generate_grammar
from infoflow.results import RunFolder


@pytest.fixture
def files(tmp_path):
    """Sentences of the generated grammar: have they more than six words?"""
    lines = [
        f"{'long' if len(sentence.text.split()) > 6 else 'short'}\t{sentence.text}"
        for sentence in generate_grammar(160)
    ]
    for name, part in (("train", lines[:80]), ("dev", lines[80:120]), ("test", lines[120:])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(part) + "\n")
    return ["--train=train.tsv", "--dev=dev.tsv", "--test=test.tsv", "--task=length", "--log=plain"]


SHORT = ["--rates=1e-3", "--seeds=0,1", "--epochs=1"]


def test_shows_scores_with_controls_and_writes_models_and_tables(infoflow, masked_lm, files, tmp_path):
    answer = infoflow("tune", masked_lm, *files, *SHORT, "--controls", "--examples=40", "--out=run")
    assert answer.code == 0, answer.err
    assert "length (classification), mean over 2 seeds: 40 to train, 40 to choose, 40 to test" in answer.out
    assert "shuffled labels" in answer.out
    assert "untrained" in answer.out
    run = RunFolder.existing("run")
    scores = run.tables["tuned_scores"]
    assert set(scores["model"]) == {str(masked_lm), f"{masked_lm} (untrained)"}
    assert set(scores["control"]) == {"", "shuffled-labels"}
    assert set(scores["examples"]) == {40}
    assert not run.tables["task_answers"].empty
    assert (tmp_path / "run" / "models" / "length" / "full-40" / "seed-1" / "config.json").exists()
    assert not (tmp_path / "run" / "features").exists()


def test_settings_and_a_second_call(infoflow, causal_lm, files):
    arguments = ["tune", causal_lm, *files, *SHORT, "--method=lora", "--set=tune.rank=2", "--out=run"]
    first, again = infoflow(*arguments), infoflow(*arguments)
    assert (first.code, again.code) == (0, 0), first.err
    assert first.out == again.out
    assert RunFolder.existing("run").read()["plan"]["tune"]["rank"] == 2


def test_mistakes_are_told(infoflow, masked_lm, files):
    untitled = [one for one in files if not one.startswith("--task")]
    for arguments, message in (
        ([masked_lm, "--train=absent.tsv"], "absent.tsv"),
        ([masked_lm, *files, "--seeds=one"], "--seeds takes whole numbers"),
        ([masked_lm, *files, "--rates=fast"], "--rates takes numbers"),
        ([masked_lm, *files, "--rates=-1"], "tune.learning_rates"),
        ([masked_lm, *files, "--set=tune.speed=3"], "tune.rank"),
        ([masked_lm, *files, "--set=rank=3"], "settings of tune only"),
        ([masked_lm, *files, "--examples=1000"], "at most the 80 training examples"),
        (["absent/model/x", *files], "No model folder"),
        ([masked_lm, *untitled, "--task=../x"], "stay in the run"),
        ([masked_lm, *untitled, f"--task={'x' * 101}"], "1 to 100 characters"),
        ([masked_lm, *files, "--tags=pos"], "tags names the column"),
        ([masked_lm, *files, "--seeds=\u0661"], "--seeds takes whole numbers"),
        ([masked_lm, *files, "--device=cuda:99"], "--device must name"),
        ([masked_lm], "--train"),
    ):
        answer = infoflow("tune", *arguments, "--out=mistakes")
        assert answer.code == 2, (arguments, answer.err)
        assert message in answer.err
        assert not Path("mistakes").exists()
