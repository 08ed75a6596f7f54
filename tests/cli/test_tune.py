"""`infoflow tune`."""

import json
import re
from pathlib import Path

import pytest

from infoflow.adaptation import INSIDE
from infoflow.corpus import generate_grammar
from infoflow.results import END, KEYS, UNTRAINED, RunFolder


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


def keys_of(table) -> set[tuple[bool, str]]:
    """Whether models of a table were trained, and the control; the keys are those of one model, as in a study."""
    assert list(table)[: len(KEYS)] == [column.name for column in KEYS]
    assert set(table["model"]) == {"masked-lm/seed-0"}
    assert set(table["objective"]) == {"masked-lm"}
    assert set(table["update"].where(table["trained"], -2)) <= {END, -2}
    assert set(table["update"].where(~table["trained"], -2)) <= {UNTRAINED, -2}
    return set(zip(table["trained"], table["control"], strict=True))


SHORT = ["--rates=1e-3", "--seeds=0,1", "--epochs=1"]


def test_shows_scores_with_controls_and_writes_models_and_tables(infoflow, masked_lm, files, tmp_path):
    answer = infoflow("tune", masked_lm, *files, *SHORT, "--controls", "--examples=40", "--out=run")
    assert answer.code == 0, answer.err
    assert "length (classification), mean over 2 seeds: 40 to train, 40 to choose, 40 to test" in answer.out
    assert "shuffled labels" in answer.out
    assert "untrained" in answer.out
    run = RunFolder.existing("run")
    assert run.read()["plan"]["model"] == str(Path(masked_lm).absolute())
    assert "task_named_by" not in run.read()["plan"]
    scores = run.tables["tuned_scores"]
    assert keys_of(scores) == {(True, ""), (True, "shuffled-labels"), (False, "")}
    assert set(scores["examples"]) == {40}
    assert not run.tables["task_answers"].empty
    assert (tmp_path / "run" / "models" / "length" / "full-40" / "seed-1" / "config.json").exists()
    assert not (tmp_path / "run" / "features").exists()


@pytest.mark.slow
def test_looks_inside_and_says_who_learned(infoflow, masked_lm, files):
    arguments = ["--rates=1e-3", "--seeds=0", "--epochs=1", "--controls", "--inside", "--out=run"]
    answer = infoflow("tune", masked_lm, *files, *arguments)
    assert answer.code == 0, answer.err
    assert not re.search("^(Measuring|Computing|Probing|Ablating)", answer.err, re.MULTILINE)
    assert len(re.findall("^Comparing models before and after tuning: 100 %", answer.err, re.MULTILINE)) == 1
    assert len(re.findall("^Tuning masked-lm/seed-0: 100 %", answer.err, re.MULTILINE)) == 1
    assert answer.err.count(" leaves out ") <= 2  # of the model and of the untrained one
    run = RunFolder.existing("run")
    for name in {*INSIDE, "tuning_allocation"}:
        table = run.tables[name]
        assert keys_of(table) == {(True, ""), (False, ""), *[(True, "shuffled-labels")] * (name == "tuning_change")}, (
            name
        )
        assert set(table["task"]) == {"length"}, name
    swaps = run.tables["layer_swaps"]
    assert set(swaps["quantity"]) == {"score", "pretraining-loss"}  # of the task's own texts
    assert run.tables["tuning_allocation"]["total"].nunique() == 2
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "What did fine-tuning change?" in page
    assert "untrained control" in page
    assert "(untrained)" not in page
    assert str(masked_lm) not in page
    for control in ("✚ from scratch", "▼ shuffled labels"):
        assert control in page
    assert 'id="single-blocks"' in page
    again = infoflow("tune", masked_lm, *files, *arguments, "--corpus=grammar:40")
    assert again.code == 0, again.err
    changed = RunFolder.existing("run").tables["layer_swaps"]["value"].to_numpy() != swaps["value"].to_numpy()
    assert set(swaps.loc[changed, "quantity"]) == {"pretraining-loss"}


@pytest.mark.slow
def test_looks_into_every_way_of_tuning_and_keeps_nothing_of_another(infoflow, masked_lm, files):
    """Recordings of one way are not those of another at the same rate; tables of an earlier call go."""
    totals = {}
    for method in ("lora", "top"):
        answer = infoflow("tune", masked_lm, *files, "--rates=1e-3", "--seeds=0,1", "--epochs=1", "--inside",
                          f"--method={method}", "--out=run")  # fmt: skip
        assert answer.code == 0, answer.err
        run = RunFolder.existing("run")
        for name in {*INSIDE, "tuning_allocation"}:
            assert set(run.tables[name]["method"]) == {method}, name
        allocated = run.tables["tuning_allocation"]
        assert set(allocated["tuning_seed"]) == {0, 1}
        assert ("adapter" in set(allocated["component"])) == (method == "lora")
        totals[method] = tuple(allocated.drop_duplicates("tuning_seed")["total"])
        assert 'id="single-blocks"' in (run.path / "report.html").read_text(encoding="utf-8"), method
    assert len(set(totals.values())) == 2
    answer = infoflow("tune", masked_lm, *files, "--rates=1e-3", "--seeds=0,1", "--epochs=1", "--out=run")
    assert answer.code == 0, answer.err
    run = RunFolder.existing("run")
    assert not {*INSIDE, "tuning_allocation"} & set(run.tables)
    assert 'id="single-blocks"' not in (run.path / "report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_says_what_is_not_known_inside(infoflow, masked_lm, files):
    short = ["--rates=1e-3", "--seeds=0", "--epochs=1", "--out=run"]
    assert infoflow("tune", masked_lm, *files, *short).code == 0
    answer = infoflow("tune", masked_lm, *files, *short, "--inside")
    assert answer.code == 0, answer.err
    assert "were not recorded for seed 0" in answer.err
    assert "tuning_allocation" not in RunFolder.existing("run").tables


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--inside", "--method=frozen"], "a frozen body does not change"),
        (["--corpus=grammar:40"], "Add --inside"),
        (["--inside", "--corpus=nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_before_anything_is_tuned(infoflow, masked_lm, files, arguments, message):
    answer = infoflow("tune", masked_lm, *files, *SHORT, *arguments, "--out=run")
    assert answer.code == 2
    assert message in answer.err
    assert not Path("run").exists()


def test_an_example_may_have_several_labels(infoflow, masked_lm, tmp_path):
    """As words that stand in it: both, one or none."""
    lines = []
    for sentence in generate_grammar(160):
        words = set(sentence.text.split())
        lines.append(f"{'|'.join(sorted(words & {'the', 'a'}))}\t{sentence.text}")
    for name, part in (("train", lines[:80]), ("dev", lines[80:120]), ("test", lines[120:])):
        (tmp_path / f"{name}.tsv").write_text("\n".join(part) + "\n")
    files = ["--train=train.tsv", "--dev=dev.tsv", "--test=test.tsv", "--task=words", "--log=plain", *SHORT]
    answer = infoflow("tune", masked_lm, *files, "--multi", "--out=run")
    assert answer.code == 0, answer.err
    facts = json.loads(Path("run/models/words/full/seed-0/task.json").read_text())
    assert facts["task"]["multi"]
    assert sorted(facts["labels"]) == ["a", "the"]


def test_says_where_reading_was_not_learned(infoflow, masked_lm, tmp_path):
    """One pass at a tiny rate says one class to all; many at a high one tell one animal from another."""
    for part, count in (("train", 60), ("dev", 30), ("test", 40)):
        rows = [
            f"{animal}\tthe {animal} sees a {animal} {n % 7}" for n in range(count // 2) for animal in ("cat", "dog")
        ]
        (tmp_path / f"{part}.tsv").write_text("\n".join(rows) + "\n")
    parts = [f"--{part}={part}.tsv" for part in ("train", "dev", "test")]
    said = "No better than the best guess without a model: accuracy "
    short = infoflow("tune", masked_lm, *parts, "--rates=1e-6", "--seeds=0,1", "--epochs=1", "--out=short")
    assert said in short.out, short.err
    assert "--epochs" in short.out.partition(said)[2]
    long = infoflow("tune", masked_lm, *parts, "--rates=1e-2", "--seeds=0,1", "--epochs=20", "--out=long")
    assert long.code == 0, long.err
    assert said not in long.out


def test_an_interval_of_several_seeds_is_not_empty_where_all_are_wrong(infoflow, masked_lm, tmp_path):
    """No draw of sentences moves a share of none, and an upper end of 0 would say that it is known for certain."""
    names = ["the\tO\ncat\tB-X\nsees\tO", "a\tO\ndog\tO\nruns\tO"]
    for part, count in (("train", 40), ("dev", 30), ("test", 30)):
        (tmp_path / f"{part}.tsv").write_text(
            "\n\n".join(f"{names[n % 2]}\nn{part}{n}\tO" for n in range(count)) + "\n"
        )
    parts = [f"--{part}={part}.tsv" for part in ("train", "dev", "test")]
    answer = infoflow(
        "tune", masked_lm, *parts, "--rates=1e-7", "--seeds=0,1", "--epochs=1", "--log=plain", "--out=run"
    )
    assert answer.code == 0, answer.err
    mean = next(line for line in answer.out.splitlines() if line.startswith("entity_f1"))
    value, low, high = map(float, re.findall(r"[0-9.]+", mean.removeprefix("entity_f1"))[:3])
    assert value == low == 0, mean
    assert 0.05 < high < 0.3, mean


def test_settings_and_a_second_call(infoflow, causal_lm, files):
    arguments = ["tune", causal_lm, *files, *SHORT, "--method=lora", "--set=tune.rank=2", "--out=run"]
    first, again = infoflow(*arguments), infoflow(*arguments)
    assert (first.code, again.code) == (0, 0), first.err
    assert first.out == again.out
    assert RunFolder.existing("run").read()["plan"]["tune"]["rank"] == 2


def test_other_settings_are_refused_and_change_nothing(infoflow, masked_lm, files):
    arguments = ["tune", masked_lm, *files, "--rates=1e-3", "--seeds=0", "--out=run"]
    assert infoflow(*arguments, "--epochs=1").code == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    for more in (["--epochs=2"], ["--epochs=1", "--method=frozen", "--set=tune.max_target=9"]):
        answer = infoflow(*arguments, *more)
        assert answer.code == 2, answer.err
        assert {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()} == before
    assert infoflow(*arguments, "--epochs=1", "--method=frozen").code == 0
    assert RunFolder.existing("run").read()["plan"]["tune"]["method"] == "frozen"


def test_test_texts_that_stand_in_training_are_told(infoflow, masked_lm, tmp_path):
    train = [f"{'xy'[n % 2]}\tthe {animal} sees a house {n}" for n, animal in enumerate(["cat", "dog"] * 20)]
    test = [*train[:3], "x\tthe old cat sees a house 4", *(f"y\tno dog likes any {n} of these" for n in range(6))]
    for part, lines in (("train", train), ("dev", test), ("test", test)):
        (tmp_path / f"{part}.tsv").write_text("\n".join(f"{n}\t{line}" for n, line in enumerate(lines)) + "\n")
    parts = [*(f"--{part}={part}.tsv" for part in ("train", "dev", "test")), "--label-column=2", "--text-column=3"]
    answer = infoflow("tune", masked_lm, *parts, "--rates=1e-3", "--seeds=0", "--epochs=1", "--out=run")
    assert answer.code == 0, answer.err
    assert "3 of 10 test texts also occur in training, 1 more differ by one word.\n" in answer.out
    (row,) = RunFolder.existing("run").tables["task_leakage"].to_dict("records")
    assert row == {"task": tmp_path.name, "within": "train", "texts": 10, "same": 3, "near": 4}


def test_a_model_that_writes_answers_in_words(infoflow, causal_lm, files):
    answer = infoflow("tune", causal_lm, *files, *SHORT, "--as-text", "--out=run")
    assert answer.code == 0, answer.err
    scores = RunFolder.existing("run").tables["tuned_scores"]
    assert set(scores["shape"]) == {"generation"}
    assert set(scores[scores["main"]]["metric"]) == {"exact_match"}
    assert set(RunFolder.existing("run").tables["task_answers"]["wanted"]) == {"long", "short"}


def test_intervals_stay_within_what_a_metric_can_be(infoflow, masked_lm, files):
    """Two seeds of tuning that differ have an interval of many points."""
    answer = infoflow("tune", masked_lm, *files, "--rates=3e-2", "--seeds=0,1", "--epochs=1", "--out=run")
    assert answer.code == 0, answer.err
    ends = [float(low) for low in re.findall(r"\[(-?[0-9.]+), ", answer.out)]
    ends += [float(value) - float(half) for value, half in re.findall(r"(-?[0-9.]+) ± ([0-9.]+)", answer.out)]
    assert ends
    assert min(ends) >= -1
    accuracy = next(line for line in answer.out.splitlines() if line.startswith("accuracy"))
    assert "[-" not in accuracy


def test_a_refused_tuning_leaves_nothing_behind(infoflow, causal_lm, tmp_path):
    """The message comes when a batch is computed: the folder has been begun by then."""
    questions = [{"id": str(n), "question": "who ?", "answers": [{"text": "cat", "answer_start": 4}]} for n in range(9)]
    passage = {"context": "the cat sees a dog", "qas": questions}
    (tmp_path / "asked.json").write_text(json.dumps({"data": [{"title": "", "paragraphs": [passage]}]}))
    parts = [f"--{part}=asked.json" for part in ("train", "dev", "test")]
    answer = infoflow("tune", causal_lm, *parts, *SHORT, "--out=refused")
    assert answer.code == 2, answer.err
    assert "--as-text" in answer.err
    assert not Path("refused").exists()


def test_a_task_without_a_name_is_called_like_its_file(infoflow, masked_lm, files, tmp_path):
    (tmp_path / "train.tsv").rename(tmp_path / "secret.tsv")
    answer = infoflow("tune", masked_lm, "--train=secret.tsv", *files[1:3], "--rates=1e-3", "--epochs=1", "--out=run")
    assert answer.code == 0, answer.err
    plan = RunFolder.existing("run").read()["plan"]
    assert (plan["task"], plan["task_named_by"]) == ("secret", str((tmp_path / "secret.tsv").absolute()))


def test_mistakes_are_told(infoflow, masked_lm, files):
    Path("empty.jsonl").write_text("")
    untitled = [one for one in files if not one.startswith("--task")]
    for arguments, message in (
        ([masked_lm, "--train=absent.tsv"], "absent.tsv"),
        ([masked_lm, "--train=empty.jsonl"], "without columns or rows"),
        ([masked_lm, *files, "--set=tune.patience=-1"], "tune.patience must be"),
        ([masked_lm, *files, "--seeds=one"], "--seeds takes whole numbers"),
        ([masked_lm, *files, "--rates=fast"], "--rates takes numbers"),
        ([masked_lm, *files, "--rates=-1"], "tune.learning_rates"),
        ([masked_lm, *files, "--set=tune.speed=3"], "tune.rank"),
        ([masked_lm, *files, "--set=rank=3"], "only changes settings of tune"),
        ([masked_lm, *files, "--examples=1000"], "at most the 80 training examples"),
        (["absent/model/x", *files], "No model folder"),
        ([masked_lm, *untitled, "--task=../x"], "be a valid folder name"),
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
