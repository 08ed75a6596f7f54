"""Examples of `--help`, `infoflow list`, old names, and where to begin."""

import re
import shlex

import pytest


def _commands(app, before: str = "") -> list[str]:
    """Names of all commands, those of `data` below it."""
    names = [name for name in app if not name.startswith("-")]
    return [one for name in names for one in (_commands(app[name], f"{name} ") or [before + name])]


def test_every_command_has_two_examples_that_parse(infoflow, monkeypatch):
    from infoflow.cli import app

    monkeypatch.setenv("COLUMNS", "200")
    for name in _commands(app):
        help = infoflow(*name.split(), "--help").out
        lines = re.findall(rf"^ (infoflow {name}\b.*?) *$", help.partition("Examples")[2], re.MULTILINE)
        assert len(set(lines)) == 2, name
        for line in lines:
            assert len(line) <= 78 or name in ("compare", "explore"), line  # one line of a terminal
            app.parse_args(shlex.split(line.partition(" >")[0])[1:], exit_on_error=False, print_error=False)


def test_help_ends_with_the_examples(infoflow):
    for words in (["heads"], ["data", "show"]):
        help = infoflow(*words, "--help").out
        assert f" infoflow {' '.join(words)} " in help[help.index("Examples") :]


def test_examples_are_in_the_message_about_a_missing_argument(infoflow):
    answer = infoflow("view", "a-model")
    assert answer.code == 2
    assert answer.err.startswith("infoflow view needs SENTENCE.\nFor example: infoflow view runs/quick/")


def test_nobody_is_led_to_give_up_safety_by_a_typing_error(infoflow):
    assert infoflow("study", "quick", "--insecur").err.startswith("Unknown option: --insecur.\n")
    assert infoflow("report", "runs/a", "--own-cod").err.startswith("Unknown option: --own-cod.\n")
    assert "Did you mean --seeds?" in infoflow("study", "quick", "--seedz=1").err


def test_without_a_command_one_screen_says_where_to_begin(infoflow):
    shown = infoflow().out.splitlines()
    assert "infoflow study quick" in shown[2]
    assert len(shown) <= 24
    assert max(map(len, shown)) <= 120


def test_old_names_work_with_a_warning(infoflow):
    answer = infoflow("data", "list")
    assert "\ntatoeba-en-fr " in answer.out
    assert "is now infoflow list corpora" in answer.err
    answer = infoflow("study", "no-such-plan", "--seed=1")
    assert "--seed is now --seeds" in answer.err
    assert "No study plan no-such-plan" in answer.err
    for written in (("--precision", "bf16"), ("--precision=bf16",)):
        answer = infoflow("analyze", "no-such-model", *written)
        assert "--precision is now --dtype" in answer.err
        assert "There is no folder no-such-model" in answer.err


@pytest.mark.parametrize(
    ("what", "known"),
    [
        ("tables", "mutual_information "),
        ("tasks", "arc-label "),
        ("objectives", "masked-lm "),
        ("presets", "adaptation "),
        ("claims", "representations:V-1 "),
        ("settings", "training.updates "),
        ("settings", "tune[].train "),
        ("corpora", "tatoeba-en-fr "),
    ],
)
def test_names_are_listed_within_100_columns(infoflow, what, known):
    lines = infoflow("list", what).out.splitlines()
    assert any(line.startswith(known) for line in lines)
    assert max(map(len, lines)) <= 100
    assert not any("[@" in line for line in lines), "keys of the bibliography"
