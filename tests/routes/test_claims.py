"""Claims about routes on the tables of a model: the numbers that they read, against the tables themselves."""

import pytest
import torch
import transformers as t
from support import tiny_heads as tiny

from infoflow import analyze
from infoflow.findings import FINDINGS, evaluate

CLAIMS = [f"routes:R{number}" for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tokenizer = tiny.tokenizer_of(tiny.trees(80))
    torch.manual_seed(0)
    config = t.GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    t.GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    only = ("route_importance", "head_positional", "given_scores")
    return analyze([folder], corpus="grammar", sentences=120, only=only, out=folder / "run").tables


def test_a_claim_reads_the_heads_of_the_table(tables):
    """Heads are chosen on one half of the sentences, so the numbers are near those of the head that the table names."""
    found = evaluate(dict(tables), [FINDINGS[name] for name in CLAIMS]).set_index("id")
    table = tables["route_importance"]
    heads = table[table["trained"] & (table["part"] == "head") & (table["measure"] == "route")]
    every = heads[heads["tag"] == "all"].set_index(["layer", "head"])["value"]
    assert found.loc["routes:R1", "effect"] == pytest.approx(every.max(), abs=0.1)
    positions = tables["head_positional"]
    previous = positions[positions["trained"] & (positions["offset"] == -1)].set_index(["layer", "head"])["value"]
    gain = every[previous.idxmax()] - every.mean()
    assert found.loc["routes:R2", "effect"] == pytest.approx(gain, abs=0.1)
    tagged = heads[heads["annotation"] == "upos"]
    assert len(tagged) > len(every)
    assert found.loc["routes:R3", "effect"] == pytest.approx((tagged["value"] - tagged["baseline"]).max(), abs=0.15)
    assert len(found.dropna(subset=["control"])) == len(CLAIMS)


def test_a_single_model_must_have_learned_its_task(tables):
    (row,) = evaluate(dict(tables), [FINDINGS["routes:R1"]]).to_dict("records")
    assert row["verdict"] == "not testable here"
    assert "has not learned its task" in row["reason"]
    scores = dict(tables)["given_scores"]
    better = scores.assign(value=1.0, low=0.9, high=1.1, baseline=6.0)
    (row,) = evaluate({**tables, "given_scores": better}, [FINDINGS["routes:R1"]]).to_dict("records")
    assert row["verdict"] != "not testable here"
