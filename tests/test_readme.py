"""The README's examples run, on tiny models; its plan loads; its links and commands exist."""

import json
import re
import shlex
from pathlib import Path

import pytest

from infoflow import StudyPlan
from infoflow.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
OF_A_SHELL = ("git ", "make ", "source ")
FEW_TABLES = '--set=analysis.tables=["head_confidence", "model_distance"]'
TINY_PLAN = """\
objectives = ["causal-lm", "masked-lm"]
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


def blocks(*languages: str) -> list[str]:
    return [text for language, text in BLOCK.findall(README) if language in languages]


@pytest.mark.slow
def test_every_block_runs_in_order_after_make_study(matched_models, tmp_path, monkeypatch, capsys):
    """In one folder, as somebody pastes them, but with tiny models in place of those of `make study`, a tiny plan in
    place of the README's, and fewer sentences."""
    from infoflow.cli import run

    for name in ("causal-lm", "masked-lm"):
        folder, model = tmp_path / "runs" / "quick" / "models" / name / "seed-0", matched_models[name]
        model.module.save_pretrained(folder)
        model.tokenizer.save_pretrained(folder)
    monkeypatch.chdir(tmp_path)
    # One stage after the other in this process: starting others would take longer than the work.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for number, (language, text) in enumerate(BLOCK.findall(README)):
        if language == "toml":
            Path("study.toml").write_text(TINY_PLAN)
        elif language == "python":
            exec(compile(text, f"README.md, block {number}", "exec"), {"__name__": "__main__"})
        else:
            assert language == "sh"
            for line in (line for line in text.splitlines() if not line.startswith(OF_A_SHELL)):
                words = shlex.split(line.replace("=500", "=4").replace("--sentences 500", "--sentences 60"))
                few = {"probe": ["--sentences=60"], "analyze": [FEW_TABLES], "compare": [FEW_TABLES]}
                assert run([*words[1:], *few.get(words[1], [])]) == 0, f"{line}\n{capsys.readouterr().err}"


def test_plans_load(tmp_path):
    for number, text in enumerate(blocks("toml")):
        (tmp_path / f"{number}.toml").write_text(text)
        assert StudyPlan.load(tmp_path / f"{number}.toml").title in text


def test_commands_and_options_exist():
    """Every `infoflow ...` line of the examples names a command and options that there are."""
    surface = set((ROOT / "tests" / "surface.txt").read_text(encoding="utf-8").split())
    lines = re.findall(r"^infoflow (\w+.*)$", "\n".join(blocks("sh")), flags=re.MULTILINE)
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
