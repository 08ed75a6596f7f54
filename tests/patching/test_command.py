"""`infoflow patch` from file to report."""

import json

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from infoflow import Run
from infoflow.cli import run
from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.findings import FINDINGS, evaluate

pytestmark = pytest.mark.filterwarnings("ignore:The metric of")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer = train_tokenizer((one.text for one in generate_grammar(300, seed=0)), vocab_size=600)
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 0.4}
    config = GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **size)
    path = tmp_path_factory.mktemp("model")
    GPT2LMHeadModel(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_a_file_becomes_tables_and_a_report(folder, tmp_path, capsys):
    words = [("the <b>man</b> near the dog", "the <b>men</b> near the dog"), ("the dog", "the cat")]
    lines = [{"clean": one, "corrupted": two, "answer": "sees", "wrong": "the"} for one, two in words * 2]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    out = tmp_path / "run"
    assert run(["patch", str(folder), "--pairs", str(tmp_path / "pairs.jsonl"), "--out", str(out)]) == 0
    assert "Share of the difference" in capsys.readouterr().out
    made = Run.open(out)
    assert {*made.tables} >= {"patching_effect", "patching_agreement", "patching_faithfulness", "patching_example"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Where does the difference travel in one pair?" in page
    assert "Which heads carry the difference?" in page
    assert "<b>man" not in page


def test_claims_read_the_tables_of_a_run(folder, tmp_path):
    out = tmp_path / "run"
    run(["patch", str(folder), "--pairs", "grammar:60", "--parts", "head,feed-forward", "--out", str(out)])
    tables = dict(Run.open(out).tables)
    found = evaluate(tables, [FINDINGS[f"patching:P{number}"] for number in (1, 2, 3)]).set_index("id")
    ranks = tables["patching_agreement"].query("part == 'head' and direction == 'denoising' and method == 'gradient'")
    (value,) = ranks.loc[ranks["statistic"] == "spearman", "value"]
    assert found.loc["patching:P1", "effect"] == pytest.approx(value)
    rows = tables["patching_faithfulness"].query("0 < parts < total")
    distance = (1 - rows.set_index("ranking")["value"]).abs().groupby("ranking").mean()
    assert found.loc["patching:P2", "effect"] == pytest.approx(distance["gradient"] - distance["integrated"])
    random = distance[distance.index.str.startswith("random")]
    assert len(random) == 10
    limit = random.mean() - 2.262 * random.std() * 1.1**0.5
    best = distance[["exact", "gradient", "integrated"]].max()
    assert found.loc["patching:P3", "effect"] == pytest.approx(limit - best, abs=1e-3)


def test_bad_input_ends_in_one_sentence(folder, tmp_path, capsys):
    (tmp_path / "pairs.jsonl").write_text('{"clean": "a"}\n', encoding="utf-8")
    out = tmp_path / "run"
    assert run(["patch", str(folder), "--pairs", str(tmp_path / "pairs.jsonl"), "--out", str(out)]) == 2
    assert "line 1: corrupted must be a text" in capsys.readouterr().err
    assert run(["patch", str(folder), "--pairs", "grammar", "--parts", "hed", "--out", str(out)]) == 2
    assert "There is no part hed" in capsys.readouterr().err
    assert not out.exists()
