"""A mistake of the user: one clear message, exit code 2, no traceback."""

import errno
import json

import pytest

MISTAKES = {
    "command with a typo": (["studdy"], 'Did you mean "study"?'),
    "option before the command": (["--log", "json", "study"], "Options go after the command"),
    "option with a typo": (["study", "--processs=1"], "Did you mean --processes?"),
    "argument as an option": (["analyze", "--model", "m"], "--model is not an option: write the model without it."),
    "no model": (["analyze"], "infoflow analyze needs MODEL.\nFor example: infoflow analyze "),
    "option without a value": (
        ["view", "m", "a sentence", "--pair"],
        "--pair needs a value.\nFor example: infoflow view ",
    ),
    "text for a number": (["analyze", "m", "--sentences=many"], "--sentences"),
    "negative number": (["analyze", "m", "--sentences=-1"], "--sentences"),
    "no thread": (["analyze", "m", "--threads=0"], "--threads"),
    "unknown display": (["study", "--log=loud"], '"rich", "plain", "json"'),
    "no plan": (
        ["study", "nothing.toml"],
        "neither a TOML file nor a preset (quick, laptop, paper, replicate, zoo, architectures, adaptation, retrieval)",
    ),
    "broken plan": (["study", "broken.toml"], "is not valid TOML"),
    "unknown setting": (["study", "unknown.toml"], "The plan has no setting training.updatess"),
    "setting of the wrong kind": (
        ["study", "tiny.toml", "--set=training.updates=soon"],
        "training.updates must be a whole number",
    ),
    "setting without a value": (["study", "tiny.toml", "--set=training.updates"], "--set takes name=value"),
    "unknown table of settings": (["study", "tiny.toml", "--set=trainings.updates=1"], "no setting trainings"),
    "same seed twice": (["study", "tiny.toml", "--seeds=1,1"], "seeds must be a list of different values"),
    "unknown objective": (["train", "masked"], "causal-lm, masked-lm, translation"),
    "translation of one language": (["train", "translation", "--corpus=one.txt"], "needs a parallel corpus"),
    "model folder that is not there": (["analyze", "./nothing", "--corpus=one.txt"], "No model folder at"),
    "unknown hub name": (["analyze", "nobody/nothing", "--corpus=one.txt"], "nobody/nothing"),
    "folder without a model": (["analyze", ".", "--corpus=one.txt"], "config.json"),
    "corpus that is not there": (["analyze", "MODEL", "--corpus=nothing.txt"], "No corpus nothing.txt"),
    "empty corpus": (["analyze", "MODEL", "--corpus=empty.txt"], "has no sentence"),
    "binary corpus": (["analyze", "MODEL", "--corpus=binary.txt"], "not UTF-8 text"),
    "parallel corpus of unequal lengths": (
        ["analyze", "MODEL", "--corpus=one.txt,two.txt"],
        "the same number of lines",
    ),
    "broken CoNLL-U": (["analyze", "MODEL", "--corpus=broken.conllu"], "broken.conllu, line 2"),
    "unknown measure": (["analyze", "MODEL", "--corpus=one.txt", "--only=magic"], "mutual_information"),
    "shard beyond the last": (["analyze", "MODEL", "--shard=2/2"], "--shard must be i/n"),
    "setting that an analysis does not have": (
        ["analyze", "MODEL", "--set=model.width=3"],
        "settings of the analysis and of probing",
    ),
    "one name for two models": (["compare", "MODEL", ".", "--name=a"], "--name must be given once for each model"),
    "name of several lines": (["prune", "MODEL", "--keep=1", "--name=a\nb"], "printable characters"),
    "one model to compare": (["compare", "MODEL"], "at least two models"),
    "nothing to merge": (["merge"], "`infoflow analyze --shard i/n`"),
    "merge of no shards": (["merge", "."], "is not a run folder"),
    "findings of no run": (["findings", "."], "is not a run folder"),
    "report of no run": (["report", "nothing"], "is not a run folder"),
    "report of an unfinished run": (["report", "begun"], "holds no tables yet"),
    "out is a file": (["analyze", "MODEL", "--out=one.txt"], "--out must be a folder"),
    "unknown corpus": (["data", "get", "nothing"], "tatoeba-en-fr, grammar"),
}


@pytest.fixture
def folder(plan, tmp_path):
    """An empty folder with some bad files."""
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "run.json").write_text('{"kind": "study"}')
    (tmp_path / "broken.toml").write_text("seeds = [")
    (tmp_path / "unknown.toml").write_text("[training]\nupdatess = 3\n")
    (tmp_path / "one.txt").write_text("a sentence of words\n")
    (tmp_path / "two.txt").write_text("eine\nzwei\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "broken.conllu").write_text("1\tThe\tthe\tDET\t_\t_\t2\tdet\t_\t_\n2\tcat\n\n")
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_message_and_exit_code_2(infoflow, folder, masked_lm, mistake):
    arguments, expected = MISTAKES[mistake]
    answer = infoflow(*[str(masked_lm) if argument == "MODEL" else argument for argument in arguments])
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert not answer.out


def test_errors_are_events_under_json(infoflow):
    answer = infoflow("report", "nothing", "--log", "json")
    event = json.loads(answer.err)
    assert answer.code == 2
    assert event["event"] == "error"
    assert "nothing is not a run folder" in event["text"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "tables/x"), "The disk is full: tables/x."),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "The disk is full."),
        (PermissionError(errno.EACCES, "Permission denied", "/out"), "No permission: /out."),
        (RuntimeError("CUDA out of memory. Tried to allocate"), "The GPU's memory is full."),
    ],
)
def test_a_full_disk_is_not_our_bug(infoflow, monkeypatch, tmp_path, error, expected):
    def fail(*_):
        raise error

    monkeypatch.setattr("infoflow.studies.check_findings", fail)
    answer = infoflow("findings", tmp_path)
    assert answer.code == 2
    assert answer.err.startswith(expected)


def test_our_own_bugs_keep_their_traceback(infoflow, monkeypatch, tmp_path):
    def fail(*_):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("infoflow.studies.check_findings", fail)
    with pytest.raises(ZeroDivisionError, match="ours"):
        infoflow("findings", tmp_path)
