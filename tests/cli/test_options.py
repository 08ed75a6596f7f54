"""Options are held against the limits of the plan's settings; nothing is rounded, nothing is dropped."""

import re

import pytest

NUMBERS = {  # option: a command that has it, and what fits
    "--seed": ("train causal-lm", "a whole number from 0 to 4,294,967,295"),
    "--threads": ("study quick", "a whole number from 1 to 1,024"),
    "--processes": ("study quick", "a whole number from 0 to 1,024"),
    "--sentences": ("analyze m", "a whole number from 0 to 1,000,000,000"),
    "--max-length": ("compare m n", "a whole number from 3 to 1,000,000"),
    "--keep": ("prune m", "a whole number, or a share of at most 100%"),
    "--top": ("heads m", "a whole number from 1 to 1,000,000,000"),
    "--width": ("report r", "a number from 2 to 20"),
    "--columns": ("report r", "a whole number from 1 to 1,000,000,000"),
}
NONSENSE = ("-1", "1.5", "nan", "inf", "1e30", "1" * 20, "9" * 5000, "0x10", "true", "many", "1__0", "٣")
OTHERS = {
    "a setting inside a setting": (["study", "quick", "--set=training.updates.x=9"], "training.updates is a setting"),
    "two settings in one": (["study", "quick", "--set", "training.updates=5\nseeds=[3]"], "one setting at a time"),
    "a list nested thousands deep": (["study", "quick", f"--set=seeds={'[' * 3000}{']' * 3000}"], "a plain value"),
    "a number of thousands of digits": (["study", "quick", f"--set=training.updates={'9' * 5000}"], "a plain value"),
    "a number too large": (["study", "quick", "--set=training.updates=99999999999999999999"], "from 1 to 1,000,000,0"),
    "not a number": (["study", "quick", "--set=training.learning_rate=nan"], "Got nan"),
    "infinity": (["analyze", "m", "--set=analysis.clusters=inf"], "Got inf"),
    "no names": (["analyze", "m", "--only=,"], "--only takes names separated by commas. Got ,"),
    "no kinds": (["prune", "m", "--keep=2", "--kinds", ","], "--kinds takes names"),
    "unknown device": (["train", "masked-lm", "--device=tpu"], "--device must be text such as auto, cpu, cuda"),
    "device of ten digits": (["train", "masked-lm", "--device=cuda:9999999999"], "--device must be text such as"),
    "shard of thousands of digits": (["analyze", "m", f"--shard={'1' * 5000}/2"], "--shard must be i/n"),
    "shard in other digits": (["analyze", "m", "--shard=٠/٢"], "--shard must be i/n"),
    "no model": (["analyze", ""], "An argument must not be empty"),
    "blank model": (["view", "  ", "a sentence"], "An argument must not be empty"),
    "empty option": (["study", "quick", "--out="], "--out must not be empty"),
    "empty value": (["study", "quick", "--out", ""], "--out must not be empty"),
    "zero byte": (
        ["analyze", "m", "--out=a\0b"],
        "--out must hold no control characters. Got the character with code 0",
    ),
    "escape": (["report", "\x1b[31m"], "An argument must hold no control characters. Got the character with code 27"),
    "half a pair": (["study", "quick", "--out", "\udcff"], "--out must be UTF-8 text"),
    "a long choice": (["study", f"--log={'x' * 5000}"], "(5,"),
    "a number of thousands of digits, in a plan": (["study", "quick", f"--set=seeds=[{'9' * 5000}]"], "a plain value"),
    "long plan": (["study", "x" * 5000], "name is too long"),
    "long out": (["study", "quick", f"--out={'x' * 300}"], "name is too long"),
    "long run": (["report", "x" * 300], "name is too long"),
}


@pytest.mark.parametrize("option", NUMBERS)
def test_no_option_takes_nonsense(infoflow, option: str) -> None:
    command, wanted = NUMBERS[option]
    for value in NONSENSE:
        answer = infoflow(*command.split(), f"{option}={value}")
        assert answer.code == 2, value
        assert answer.err.startswith(f"{option} must be {wanted}. Got "), answer.err
        assert re.search(rf"Write for example {option} \S+\.\n$", answer.err)
        assert len(answer.err) < 300


@pytest.mark.parametrize("mistake", OTHERS)
def test_mistakes_get_one_message(infoflow, mistake: str) -> None:
    arguments, expected = OTHERS[mistake]
    answer = infoflow(*arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert len(answer.err) < 700
    assert not answer.out


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RANK": "abc"}, "RANK, which torchrun sets, must be a number from 0 to 1,000,000. Got abc."),
        ({"RANK": "0", "WORLD_SIZE": "two"}, "WORLD_SIZE, which torchrun sets, must be a number"),
        ({"RANK": "0"}, "WORLD_SIZE, which torchrun sets, must be a number from 1 to 1,000,000. It is not set."),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be below WORLD_SIZE. Got 2 of 2."),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_PORT, which torchrun sets"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1"}, "MASTER_ADDR must name the machine"),
        ({"OMP_NUM_THREADS": "abc"}, "OMP_NUM_THREADS must be a whole number above 0. Got abc."),
    ],
)
def test_a_launchers_variables_are_checked(infoflow, monkeypatch, variables, expected: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    answer = infoflow("findings", ".")
    assert answer.code == 2
    assert answer.err.startswith(expected)
