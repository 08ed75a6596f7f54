"""Numbers in the guides equal the committed results of experiments: each table is computed again from them."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
OVER_TRAINING = ROOT / "experiments" / "studies" / "over-training"
EVENTS = {
    "predictions are closest to frequencies of single tokens": "least divergence from 1-grams (before)",
    "the loss has fallen by half": "half of: loss",
    "the best induction head has half of its score": "half of: induction, best head",
    "attention to the first token is half way": "half of: attention to the first token, mean of heads",
    "chrF is half way": "half of: chrf",
    "BLEU is half way": "half of: bleu",
    "states, first": "first state settled",
    "states, last": "last state settled",
    "blocks, first": "first block settled",
    "blocks, last": "last block settled",
}
OBJECTIVES = {"causal LM": "causal-lm", "masked LM": "masked-lm", "translation": "translation"}


def guide(name: str) -> str:
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")


def tables(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """Heads and rows of the Markdown tables of a page."""
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        found.append((rows[0], rows[2:]))
    return found


def test_times_are_those_of_the_experiment():
    events = pd.read_csv(OVER_TRAINING / "events.csv").set_index(["event", "objective"])
    seen = set()
    for head, rows in tables(guide("when")):
        for name, *cells in rows:
            for column, cell in zip(head[1:], cells, strict=True):
                key = (EVENTS[name], OBJECTIVES[column])
                row = events.loc[key] if key in events.index else None
                told = "–" if row is None else f"{row['median']:,.0f} ({row['min']:,.0f}–{row['max']:,.0f})"
                assert cell == told, (name, column)
            seen.add(name)
    assert seen == set(EVENTS)


def test_what_else_the_guide_on_training_says():
    text = guide("when")
    claims = pd.read_csv(OVER_TRAINING / "findings.csv").set_index("id")
    first = claims.loc["time:T1"]
    assert first["verdict"] == "undetermined"
    assert (
        f"tau {first['effect']:.2f} ({first['low']:.2f} to {first['high']:g})".replace("0.", ".").replace("-", "−")
        in text
    )
    blocks = pd.read_csv(OVER_TRAINING / "convergence.csv").query("reference == 'final' and kind == 'block'")
    mean = {
        name: rows.sort_values("layer")["time"].is_monotonic_increasing for name, rows in blocks.groupby("objective")
    }
    assert mean["causal-lm"]
    assert not mean["masked-lm"]
    removable = pd.read_csv(OVER_TRAINING / "prunable_by_update.csv")
    removable = removable.query("objective == 'translation' and order == 'importance' and kind == 'all'")
    for update in (250, 2000):
        values = removable[removable["update"] == update]["value"]
        assert len(values) == 3
        assert f"{values.min():.2f}–{values.max():.2f} at {update:,}".replace("0.", ".") in text.replace("\n", " ")
    roles = pd.read_csv(OVER_TRAINING / "events.csv").query("event.str.startswith('first head')")
    assert roles[["objective", "median", "count"]].values.tolist() == [["masked-lm", 1000.0, 1]]
    updates = sorted(set(pd.read_csv(OVER_TRAINING / "roles.csv")["update"]))
    assert len(updates) == 14
    assert sum(update < 22 for update in updates) == 4


def test_answers_are_those_of_the_experiment():
    known = pd.read_csv(ROOT / "experiments" / "studies" / "retrieval" / "reading" / "knowledge.csv")
    known = known[known["index"] == "as-trained"].set_index(["arm", "document", "of", "metric", "reading"])
    columns = {
        "once": ("none", "trained x1", "p1", "raw"),
        "16 times as often": ("none", "trained x16", "p1", "raw"),
        "held out": ("none", "held out", "p1", "raw"),
        "bits": ("none", "trained x16", "bits", "raw"),
        "bits, elicited": ("none", "trained x16", "bits", "elicited"),
        "with the right passage": ("gold", "held out", "p1", "raw"),
        "with the passage that it finds": ("own", "held out", "p1", "raw"),
    }
    told = 0
    for head, rows in tables(guide("looking-up")):
        for name, *cells in rows:
            arm = {"closed-book, asked as rarely": "closed-book+null-share"}.get(name, name)
            for column, cell in zip(head[1:], cells, strict=True):
                value = known.loc[(arm, *columns[column]), "value"]
                assert cell == f"{value:.2f}".removeprefix("0"), (name, column)
                told += 1
    assert told == 7 * 5 + 6 * 2


def test_questions_named_in_guides_are_those_of_the_report():
    paths = [path for path in (ROOT / "src/infoflow").rglob("*.py") if {"report", "figures"} & {*path.parts}]
    asked = "".join(path.read_text(encoding="utf-8") for path in paths)
    for name in ("when", "looking-up"):
        questions = re.findall(r"\*([A-Z][^*]+\?)\*", guide(name).replace("\n", " "))
        assert questions
        assert all(f'question="{question}"' in asked for question in questions), questions


def test_commands_of_the_guides_are_understood():
    from infoflow.cli import run

    commands = [line.split("#")[0].split()[1:] for name in ("when", "looking-up")
                for line in guide(name).splitlines() if line.startswith("infoflow ")]  # fmt: skip
    assert len(commands) == 7
    for words in {tuple(each[:2]) if each[0] == "data" else (each[0],) for each in commands}:
        assert run([*words, "--help"]) == 0


def test_pictures_of_experiments_are_on_the_site(tmp_path):
    pytest.importorskip("griffe", reason="the tools for the documentation are not installed")
    from sitebuild import pictures  # pyright: ignore[reportMissingImports]

    text, names = pictures.brought_in(guide("when"), "guides/when.md")
    assert {Path(name).name for name in names} == {"convergence-times.svg", "prunable-over-training.svg"}
    pictures.copy(names, ROOT, tmp_path)
    for source in re.findall(r'<img alt="[^"]+" src="([^"]+)">', text):
        assert (tmp_path / "guides" / ".." / source.removeprefix("../")).resolve() == (tmp_path / source[3:]).resolve()
        assert (tmp_path / source.removeprefix("../")).read_bytes().startswith(b"<svg")
    kept = "![A](../report.png)"
    assert pictures.brought_in(kept, "guides/a.md") == (kept, set())
