"""What a command cannot finish it refuses before it works, and what was interrupted goes on."""

import pytest


@pytest.fixture
def no_model(monkeypatch):
    """Loading a model is work."""

    def load(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("infoflow.models.load_model", load)


def test_a_curve_of_pruned_models_goes_on_after_an_interruption(infoflow, masked_lm, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    command = ["prune", masked_lm, "--keep=2,3", "--corpus=grammar:60", "--sentences=40", "--out=curve"]
    with monkeypatch.context() as patched:
        patched.setattr(
            "infoflow.subjects.pruning.measures._prune_to_each._random", interrupted
        )  # behind the last of the smaller models
        assert infoflow(*command).code == 130
    assert {path.name for path in (tmp_path / "curve").iterdir()} >= {"keep-2", "keep-3"}
    again = infoflow(*command)
    assert again.code == 0, again.err
    assert (tmp_path / "curve" / "report.html").exists()


@pytest.mark.parametrize("place", ["zeros", "small/zeros", "small"])
def test_a_masked_model_that_cannot_be_written_is_refused_first(infoflow, masked_lm, tmp_path, place, monkeypatch):
    monkeypatch.setattr(
        "infoflow.subjects.pruning.measures._prune_to.rank_heads", lambda *_, **__: pytest.fail("heads were ranked")
    )
    (tmp_path / "zeros").mkdir()
    (tmp_path / "zeros" / "mine.txt").write_text("mine")
    answer = infoflow("prune", masked_lm, "--keep=3", "--corpus=grammar:60", "--out=small", f"--masked={place}")
    assert answer.code == 2
    assert (tmp_path / "zeros" / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "small").exists()


@pytest.mark.parametrize(
    "lies", ["report.html", "tables/task_scores.parquet", "models", "tables/task_scores.parquet/x"]
)
@pytest.mark.parametrize("command", ["tune", "fill-in", "bert-score"])
def test_another_s_files_are_told_before_a_model_is_loaded(infoflow, no_model, tmp_path, command, lies):
    (tmp_path / "task.tsv").write_text("a b\tx\nc d\ty\n" * 20)
    (tmp_path / "facts.tsv").write_text("P1\tParis\tFrance\n" * 3)
    tables = {"tune": "tuned_scores", "fill-in": "fill_in", "bert-score": "bert_score_layers"}
    path = tmp_path / "out" / lies.replace("task_scores", tables[command])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    options = {
        "tune": ["--train=task.tsv", "--dev=task.tsv", "--test=task.tsv"],
        "fill-in": ["--facts=facts.tsv", "--template=[X] is in [Y] ."],
        "bert-score": ["--pairs=task.tsv"],
    }
    answer = infoflow(command, "some-model", *options[command], "--out=out")
    assert answer.code == 2, answer.err
    assert str((path.parent if lies.endswith("/x") else path).relative_to(tmp_path)) in answer.err
    assert path.read_text() == "mine"


def test_a_file_of_judgements_or_results_of_another_stays(infoflow, tmp_path):
    assert infoflow("data", "index", "facts:16", "--out=index").code == 0
    for option, name in (("--trec", "run.txt"), ("--qrels", "judged.txt")):
        (tmp_path / name).write_text("q 0 d 1\nmine\n")
        answer = infoflow("data", "index", "index", "--benchmark=facts:16", option, name)
        assert answer.code == 2
        assert "would be replaced" in answer.err
        assert (tmp_path / name).read_text() == "q 0 d 1\nmine\n"
        (tmp_path / name).unlink()
        for _ in range(2):  # its own is written again
            assert infoflow("data", "index", "index", "--benchmark=facts:16", option, name).code == 0
