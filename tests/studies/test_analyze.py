"""`analyze` on several models: names, words shared across tokenizers, nothing done twice."""

import dataclasses
import shutil

import pandas as pd
import pytest
from support.undrawn import undrawn

from infoflow.corpus import generate_grammar, load_corpus, train_tokenizer
from infoflow.foundation import UserError, make_display, use_display
from infoflow.heads import Confidence, Entropy
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.results import RunFolder
from infoflow.studies import AnalysisPlan, AnalyzeOptions, MeasureExternal, Run, analyze, merge
from infoflow.subjects.probing.stages import probe
from infoflow.subjects.pruning.stages import prune
from infoflow.training import ModelConfig, build_models

pytestmark = pytest.mark.slow

SETTINGS = AnalysisPlan(
    occurrences=500,
    types=40,
    clusters=8,
    clusterings=1,
    distance_occurrences=1500,
    neighbour_occurrences=400,
    neighbours=5,
    frequency_occurrences=320,
    lens_steps=4,
    relevance_sentences=4,
    importance_sentences=20,
    ablation_sentences=6,
    probe_sentences=30,
)


def test_a_model_given_twice_is_refused(folders: list[str], tmp_path) -> None:
    with pytest.raises(UserError, match="Models must be distinct"):
        analyze([folders[0], folders[0]], AnalyzeOptions(corpus="grammar:50"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[str]:
    """Two masked LMs of unequal width and depth, with tokenizers of unequal vocabularies."""
    corpus, base, folders = generate_grammar(300), tmp_path_factory.mktemp("models"), []
    for index, (width, layers, size) in enumerate([(16, 2, 60), (32, 3, 150)]):
        tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=size)
        config = ModelConfig(width=width, layers=layers, heads=2, feedforward=32, initializer_range=0.1)
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        module = build_models([make_objective("masked-lm")], config, vocabulary, seed=index)["masked-lm"]
        folder = base / str(index) / "model"
        module.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        folders.append(str(folder))
    return folders


@pytest.fixture(scope="module")
def compared(folders, tmp_path_factory) -> Run:
    """One table of each kind: of a pass, of a sample of tokens, of single sentences, and of pairs of models."""
    kinds = ("head_confidence", "mutual_information", "head_ablation", "model_distance", "space_similarity")
    options = AnalyzeOptions(corpus="grammar:400", sentences=350, measures=dataclasses.replace(SETTINGS, tables=kinds))
    with undrawn():
        return analyze(folders, options, tmp_path_factory.mktemp("runs") / "compared")


def test_models_with_different_tokenizers_are_compared_on_the_same_words(compared: Run) -> None:
    """A name is as much of the path as tells models apart."""
    pairs = compared.tables["model_distance"]
    assert set(pairs["model_a"]) == {"0"}
    assert set(pairs["model_b"]) == {"1"}
    assert set(pairs["trained"]) == {True, False}
    assert set(pairs["layer"]) == {0, 1, 2}
    assert (pairs["count"] > 350).all()  # words: 1500 tokens of the finer tokenizer, several to a word
    assert (pairs["value"] < pairs["baseline"]).all()  # the same words are closer than shuffled ones


def test_all_layers_of_both_models_are_compared(compared: Run) -> None:
    grid = compared.tables["space_similarity"]
    for (metric, trained), cells in grid.groupby(["metric", "trained"]):
        assert len(cells) == 3 * 4, (metric, trained)  # states of two and of three layers
    assert set(grid["metric"]) == {"rsa", "pwcca", "cka", "cka_debiased", "procrustes"}
    assert grid[["width_a", "width_b"]].drop_duplicates().to_numpy().tolist() == [[16, 32]]


def test_every_model_has_its_control(compared: Run) -> None:
    for name in ("head_confidence", "mutual_information", "head_ablation"):
        assert len(compared.tables[name][["model", "trained"]].drop_duplicates()) == 4, name


def test_what_is_done_is_not_done_again(folders: list[str], tmp_path, monkeypatch, no_drawing) -> None:
    options = AnalyzeOptions(corpus="grammar:60", only=("head_entropy",), control=False, measures=SETTINGS)
    before = analyze(folders[:1], options, tmp_path / "run").tables["head_entropy"]
    monkeypatch.setattr(MeasureExternal, "measure", lambda *_, **__: pytest.fail("measured twice"))
    pd.testing.assert_frame_equal(before, analyze(folders[:1], options, tmp_path / "run").tables["head_entropy"])


def test_the_clock_of_another_analysis_begins_anew(folders: list[str], tmp_path, no_drawing) -> None:
    def seconds(corpus: str) -> float:
        options = AnalyzeOptions(corpus=corpus, only=("head_entropy",), control=False, measures=SETTINGS)
        return analyze(folders[:1], options, tmp_path / "run").folder.read()["seconds"]

    seconds("grammar:60")
    (tmp_path / "run" / ".seconds").write_text("1000.0")
    assert seconds("grammar:60") >= 1000
    assert seconds("grammar:70") < 1000


def test_python_functions_are_the_command_lines(folders: list[str], tmp_path, no_drawing) -> None:
    options = AnalyzeOptions(corpus="grammar:60", only=("head_entropy",), control=False, measures=SETTINGS)
    run = analyze(folders[:1], options, tmp_path / "run")
    assert set(run.tables) == {"head_entropy"}
    with pytest.raises(UserError, match="unknown measure"):
        analyze(folders[:1], AnalyzeOptions(corpus="grammar:60", only=("entropy",)), tmp_path / "other")


def test_one_model_and_options_by_name(folders: list[str], tmp_path, no_drawing) -> None:
    options = AnalyzeOptions(corpus="grammar:60", only=("head_entropy",), control=False, measures=SETTINGS)
    run = analyze(folders[:1], options, tmp_path / "run")
    changes = {"corpus": "grammar:60", "only": "head_entropy", "control": False, "measures": SETTINGS}
    same = analyze(folders[0], out=tmp_path / "same", **changes)
    pd.testing.assert_frame_equal(pd.DataFrame(run.tables["head_entropy"]), pd.DataFrame(same.tables["head_entropy"]))
    with pytest.raises(UserError, match=r"There is no option corpu\. Did you mean corpus\?"):
        analyze(folders[0], corpu="grammar:60")
    with pytest.raises(UserError, match=r"corpus must be a name or a path, .* Got \["):
        analyze(folders[0], corpus=["a sentence"])


@pytest.mark.usefixtures("no_drawing")
def test_distances_of_too_few_occurrences_are_computed_if_they_are_named(folders: list[str], tmp_path, capsys) -> None:
    """By default they are those of the tiny study, of 320 occurrences."""
    by_frequency = {"change_by_frequency", "influence_by_frequency"}
    few = dataclasses.replace(SETTINGS, frequency_occurrences=319)  # a model of width 32 needs 320
    options = AnalyzeOptions(corpus="grammar:400", sentences=350, control=False, measures=few)
    named = dataclasses.replace(options, only=tuple(by_frequency))
    with use_display(make_display("plain")):
        runs = [analyze(folders[1], each, tmp_path / str(i)) for i, each in enumerate((options, named))]
    found = [by_frequency & set(run.tables) for run in runs]
    assert found == [set(), by_frequency]
    assert (
        "319 occurrences for each range of ranks are fewer than ten for each dimension (320)" in capsys.readouterr().err
    )


def test_a_link_keeps_its_own_name(folders: list[str], tmp_path, no_drawing) -> None:
    (tmp_path / "mine").symlink_to(folders[0])
    changes = {"corpus": "grammar:60", "only": "head_entropy", "control": False, "measures": SETTINGS}
    run = analyze(tmp_path / "mine", out=tmp_path / "run", **changes)
    assert set(run.tables["head_entropy"]["model"]) == {"mine"}
    assert load_model(tmp_path / "mine").name == "mine"


def test_probing_and_pruning_in_one_call(folders: list[str], tmp_path, no_drawing) -> None:
    run = probe(folders[0], "length", out=tmp_path / "probed", corpus="grammar:200", control=False)
    assert set(run.tables["probe_scores"]["task"]) == {"length"}
    with pytest.raises(UserError, match="No task was named"):
        probe(folders[0], corpus="grammar:200")
    small = prune(folders[0], "50%", "grammar:60", out=tmp_path / "small")
    assert len(small.removed) == 2
    again = prune(load_model(folders[0]), 2, load_corpus("grammar:60"), out=tmp_path / "again")
    assert again.removed == small.removed
    pd.testing.assert_frame_equal(again.quality, small.quality)
    with pytest.raises(UserError, match="keep must be a number of heads or a share"):
        prune(folders[0], "half", "grammar:60", out=tmp_path / "none")


def test_pruning_to_several_numbers_is_each_of_them_and_one_page(folders: list[str], tmp_path) -> None:
    """The same as one call for each, ranked once; three random choices are the control."""
    found = prune(folders[1], [2, "67%", 2], "grammar:60", out=tmp_path / "each")
    assert found.keep == [4, 2]
    for number, point in zip(found.keep, found.points, strict=True):
        alone = prune(folders[1], number, "grammar:60", out=tmp_path / str(number))
        assert point.removed == alone.removed
        pd.testing.assert_frame_equal(point.quality, alone.quality)
        assert load_model(tmp_path / "each" / f"keep-{number}").anatomy == point.model.anatomy
    rows = found.pruning
    assert set(rows["method"]) == {"importance", "random"}
    assert sorted(rows.loc[rows["method"] == "random", "draw"].unique()) == [0, 1, 2]
    ranked = rows[rows["method"] == "importance"].set_index("kept")
    for row in found.quality.itertuples():
        assert ranked.loc[row.keep, "value"] == pytest.approx(row.after)
        assert ranked.loc[row.keep, "baseline"] == pytest.approx(row.before)
    random = rows[(rows["method"] == "random") & (rows["kept"] == 2)]["value"].mean()
    assert found.random_loss[1] == pytest.approx(random)
    page = (tmp_path / "each" / "report.html").read_text(encoding="utf-8")
    assert "Heads are ranked, and the lowest are removed." in page
    assert found.report == tmp_path / "each" / "report.html"
    prune(folders[1], [3], "grammar:60", out=tmp_path / "each")  # its own folder may be used again
    assert (tmp_path / "each" / "keep-3" / "pruned.json").exists()


def test_the_control_of_models_that_are_trained_on_is_trained_on(folders: list[str], tmp_path, no_drawing) -> None:
    plain = prune(folders[1], [4, 2], "grammar:60", out=tmp_path / "plain")
    found = prune(folders[1], [4, 2], "grammar:60", out=tmp_path / "trained", recover=60, recover_rate=1e-2)
    removed = found.pruned_heads[found.pruned_heads["method"] == "random"]
    expected = plain.pruned_heads[(plain.pruned_heads["method"] == "random") & (plain.pruned_heads["draw"] == 0)]
    pd.testing.assert_frame_equal(removed.reset_index(drop=True), expected.reset_index(drop=True))
    rows = found.pruning[found.pruning["method"] == "random"].set_index("kept")
    untrained = plain.pruning[(plain.pruning["method"] == "random") & (plain.pruning["draw"] == 0)].set_index("kept")
    assert (rows["value"] < untrained["value"]).all()


def test_several_numbers_are_refused_before_anything_is_written(folders: list[str], tmp_path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    for keep, out, message in [
        ([2, 6], "out", "nothing to remove"),
        ([2, 9], "out", "number of heads, 6"),
        ([], "out", "an empty list"),
        ([2, "x"], "out", "keep must be a number"),
        ([2, 3], "full", "full contains other files"),
    ]:
        with pytest.raises(UserError, match=message):
            prune(folders[1], keep, "grammar:60", out=tmp_path / out)
    assert not (tmp_path / "out").exists()


def test_bf16_changes_numbers_little(folders: list[str], tmp_path, no_drawing) -> None:
    only = ("head_confidence", "layer_distance", "geometry", "lens", "head_importance")
    runs = {
        dtype: analyze(
            folders[:1],
            AnalyzeOptions(corpus="grammar:200", only=only, measures=SETTINGS, control=False, dtype=dtype),
            tmp_path / dtype,
        )
        for dtype in ("float32", "bfloat16")
    }
    assert dict(runs["bfloat16"].folder.read()["plan"]["options"])["dtype"] == "bfloat16"
    exact, rough = (runs[name].tables["head_confidence"]["value"] for name in ("float32", "bfloat16"))
    assert (exact != rough).any(), "the states were not in bfloat16"
    assert (exact - rough).abs().max() < 0.004
    # Measures of every kind run on such states, and find about the same.
    exact, rough = (runs[name].tables["layer_distance"]["value"] for name in ("float32", "bfloat16"))
    assert (exact - rough).abs().max() < 0.02


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"models": [3], "options": {}}, "It names no models"),
        ({"models": ["m"]}, "A plan must be a table of settings. Got nothing"),
        (
            {"models": ["m"], "options": {"dtype": "fp8"}},
            'dtype must be one of "float32", "bfloat16", "float16". Got "fp8"',
        ),
        ({"models": ["m"], "options": {"sentences": -1}}, "sentences must be a whole number"),
        ({"models": ["m"], "options": {"measures": {"types": []}}}, "measures.types must be a whole number"),
        ({"models": ["m"], "options": {"typo": 1}}, "no setting typo"),
    ],
)
def test_a_damaged_plan_of_a_shard_is_told(tmp_path, plan, message: str) -> None:
    run = RunFolder(tmp_path / "shard")
    run.path.mkdir()
    run.update(kind="analyze", plan=plan)
    with pytest.raises(UserError, match=r"run.json is damaged: its plan cannot be read\. ") as caught:
        merge([run.path], tmp_path / "out")
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_model_that_cannot_be_read_is_told_of_before_any_is_measured(
    folders: list[str], tmp_path, monkeypatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    monkeypatch.setattr(MeasureExternal, "run", lambda self: pytest.fail("measured"))
    with pytest.raises(UserError, match=r"config\.json is not readable JSON: .*\. Save or download the model again"):
        analyze([folders[0], str(tmp_path / "broken")], AnalyzeOptions(corpus="grammar:50"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("corpus", ["nothing.txt", "grammar:50"])
def test_a_refused_shard_leaves_no_folder(tmp_path, corpus: str) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"No corpus nothing\.txt|config\.json is not readable"):
        analyze([str(tmp_path / "broken")], AnalyzeOptions(corpus=corpus), tmp_path / "runs" / "out", shard=(0, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


def test_a_shard_whose_folder_another_removed_keeps_its_plan(tmp_path, monkeypatch) -> None:
    run = RunFolder(tmp_path / "out")
    monkeypatch.setattr("infoflow.studies._analyze._analyze", lambda *_: (run.path / "run.json").unlink())
    analyze(["model"], AnalyzeOptions(corpus="grammar:50"), run.path, shard=(0, 2))
    assert run.read()["plan"]["models"] == ["model"]


def test_a_refused_analysis_leaves_what_was_there(folders: list[str], tmp_path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="head_entropi"):
        analyze(folders[:1], AnalyzeOptions(corpus="grammar:50", only=("head_entropi",)), tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


@pytest.mark.usefixtures("no_drawing")
def test_a_measure_that_fails_is_left_out_and_tried_again(folders: list[str], tmp_path, monkeypatch) -> None:
    two = ("head_entropy", "head_confidence")
    options = AnalyzeOptions(corpus="grammar:60", only=two, control=False, measures=SETTINGS)
    with monkeypatch.context() as broken:
        broken.setattr(Entropy, "result", lambda self: 1 / 0)
        with pytest.warns(UserWarning, match="head_entropy of 0 failed and is left out"):
            run = analyze(folders[:1], options, tmp_path / "run")
    assert set(run.tables) == {"head_confidence"}
    (failure,) = run.failures
    assert (failure.table, failure.model) == ("head_entropy", "0")
    assert "ZeroDivisionError: division by zero" in failure.reason
    assert "1 / 0" in failure.traceback
    with monkeypatch.context() as counted:
        counted.setattr(Confidence, "update", lambda *_: pytest.fail("measured twice"))
        again = analyze(folders[:1], options, tmp_path / "run")
    assert set(again.tables) == set(two)
    assert again.failures == ()


def test_a_table_that_fails_later_does_not_stay(folders: list[str], tmp_path, monkeypatch, no_drawing) -> None:
    """The same plan on other weights: the first model's table must not pass for the second's."""
    model = tmp_path / "model"
    two = ("head_entropy", "head_confidence")
    options = AnalyzeOptions(corpus="grammar:60", only=two, control=False, measures=SETTINGS)
    shutil.copytree(folders[0], model)
    assert set(analyze([str(model)], options, tmp_path / "run").tables) == set(two)
    shutil.rmtree(model)
    shutil.copytree(folders[1], model)
    monkeypatch.setattr(Entropy, "result", lambda self: 1 / 0)
    with pytest.warns(UserWarning, match="left out"):
        assert set(analyze([str(model)], options, tmp_path / "run").tables) == {"head_confidence"}


def test_the_only_table_that_was_asked_for_raises(folders: list[str], tmp_path, monkeypatch) -> None:
    options = AnalyzeOptions(corpus="grammar:60", only=("head_entropy",), control=False, measures=SETTINGS)
    monkeypatch.setattr(Entropy, "result", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analyze(folders[:1], options, tmp_path / "run")
