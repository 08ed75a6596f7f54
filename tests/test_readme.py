"""The README's examples run, on tiny models; its plan loads; its links and commands exist."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TINY_PLAN = """\
objectives = ["masked-lm"]
[corpus]
name = "grammar:400"
vocabulary = 150
validation = 0.1
test = 0.2
[model]
width = 16
layers = 2
heads = 2
feedforward = 32
[training]
updates = 3
[analysis]
tables = ["task_scores", "mutual_information"]
occurrences = 300
types = 20
clusters = 10
untrained = false
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(matched_models, tmp_path, monkeypatch):
    """A folder with the model and the plan that the examples name."""
    model = matched_models["masked-lm"]
    model.module.save_pretrained(tmp_path / "my-model")
    model.tokenizer.save_pretrained(tmp_path / "my-model")
    (tmp_path / "study.toml").write_text(TINY_PLAN)
    monkeypatch.chdir(tmp_path)
    # One stage after the other in this process: starting others would take longer than the work.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return tmp_path


@pytest.mark.parametrize("example", range(len(blocks("python"))))
def test_python_examples_run(folder, example, capsys):
    code = compile(blocks("python")[example], f"README.md, Python example {example}", "exec")
    exec(code, {"__name__": "__main__"})
    assert "Traceback" not in capsys.readouterr().err


def test_plans_load(tmp_path):
    from infoflow import StudyPlan

    for number, text in enumerate(blocks("toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        assert StudyPlan.load(tmp_path / f"{number}.toml").title in text


def test_commands_and_options_exist():
    """Every `infoflow ...` line of the examples names a command and options that there are."""
    from infoflow.cli import app

    surface = set((ROOT / "tests" / "surface.txt").read_text(encoding="utf-8").split())
    text = "\n".join([*blocks("sh"), *blocks("console")])
    lines = re.findall(r"^(?:\$ )?(?:\S+ )*?infoflow (\w+.*)$", text, flags=re.MULTILINE)
    assert len(lines) >= 10
    for line in lines:
        assert line.split()[0] in list(app), line
        assert set(re.findall(r"--[\w-]+", line)) <= surface, line


def test_linked_files_exist():
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if "://" not in target]
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_picture_shows_the_preset_of_today():
    """Whoever changes the preset draws the picture again: `docs/screenshot.py runs/quick docs/report.png`."""
    from infoflow.studies import StudyPlan

    shown = json.loads((ROOT / "docs" / "report.json").read_text(encoding="utf-8"))
    assert StudyPlan.from_json(shown).to_json() == StudyPlan.load("quick").to_json()
