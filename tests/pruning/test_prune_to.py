"""Pruning to a number of heads, into a folder; and what removal saves."""

import numpy as np
import pytest
import torch
from support.plain import run_card
from transformers import AutoModelForMaskedLM, LlamaConfig, LlamaForCausalLM

from infoflow import prune
from infoflow.foundation import UserError
from infoflow.models import load_model, translate
from infoflow.pruning import compare_speed, prune_to


def test_keeps_so_many_heads_and_writes_a_model_that_commands_read(matched_models, parallel_corpus, tmp_path):
    model = matched_models["translation"]
    pruned = prune_to(model, parallel_corpus, 20, tmp_path / "small")
    assert sum(a.num_heads for a in pruned.model.anatomy.attentions()) == 20
    assert len(pruned.removed) == 4
    again = load_model(tmp_path / "small")
    sentence = ["the cat sees a dog"]
    assert translate(again, sentence, beams=1) == translate(pruned.model, sentence, beams=1)
    assert again.target_tokenizer is not None
    row = pruned.quality.iloc[0]
    assert row["after"] - row["before"] == pytest.approx(row["change"])
    assert row["sentences"] == 20
    assert row["low"] <= row["change"] <= row["high"]
    sizes = pruned.speed.drop_duplicates("model").set_index("model")
    assert sizes["parameters"].iloc[1] < sizes["parameters"].iloc[0]
    assert sizes["heads"].tolist() == [24, 20]
    assert set(pruned.speed["batch"]) == {1, 32}


def test_only_some_kinds_may_go(matched_models, parallel_corpus, tmp_path):
    model = matched_models["translation"]
    pruned = prune_to(model, parallel_corpus, 18, tmp_path / "small", kinds=["encoder-self"], by="random")
    assert {head[:2] for head in pruned.removed} == {("encoder", "self")}
    with pytest.raises(UserError, match=r"between 16 and the number of heads, 24 \(16 heads of other kinds stay\)"):
        prune_to(model, parallel_corpus, 12, tmp_path / "small", kinds=["encoder-self"])


def test_a_seed_is_a_random_order(matched_models, parallel_corpus, tmp_path):
    model, removed = matched_models["masked-lm"], []
    for seed in (0, 1, 1):
        folder = tmp_path / f"small-{len(removed)}"
        removed.append(prune_to(model, parallel_corpus, 4, folder, by="random", seed=seed).removed)
    assert removed[1] == removed[2] != removed[0]


def test_numbers_are_checked(matched_models, parallel_corpus, tmp_path):
    model = matched_models["masked-lm"]
    for keep, message in ((9, "number of heads, 8"), (-1, "between 0"), (8, "nothing to remove")):
        with pytest.raises(UserError, match=message):
            prune_to(model, parallel_corpus, keep, tmp_path / "small")
    with pytest.raises(UserError, match="two sentences"):
        prune_to(model, parallel_corpus, 4, tmp_path / "small", sentences=1)


def test_half_a_group_is_not_a_number_to_keep(matched_models, parallel_corpus, tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    model = load_model(LlamaForCausalLM(config), tokenizer=matched_models["causal-lm"].tokenizer)
    with pytest.raises(UserError, match=r"use --keep 4 or 6\. Got 5"):
        prune_to(model, parallel_corpus, 5, tmp_path / "small", by="random")


def test_speed_of_a_model_against_itself(matched_models):
    model = matched_models["masked-lm"]
    table = compare_speed([model, model], batches=(2,), tokens=8, rounds=3)
    assert len(table) == 2
    assert table["parameters"].iloc[0] == sum(p.numel() for p in model.module.parameters())
    assert np.isfinite(table["milliseconds"]).all()
    assert table["speed-up"].tolist() == pytest.approx((table["milliseconds"].iloc[0] / table["milliseconds"]).tolist())
    with pytest.raises(UserError, match="at least one model"):
        compare_speed([])


def test_only_an_earlier_pruned_model_is_replaced(matched_models, parallel_corpus, tmp_path):
    model = matched_models["masked-lm"]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "notes.txt").write_text("mine")
    model.module.save_pretrained(tmp_path / "model")
    for name in ("docs", "model"):
        before = sorted(path.name for path in (tmp_path / name).iterdir())
        with pytest.raises(UserError, match=rf"{name} contains other files .*: choose another --out"):
            prune_to(model, parallel_corpus, 4, tmp_path / name)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == before
    for keep in (6, 4):
        prune_to(model, parallel_corpus, keep, tmp_path / "small", by="random")
    assert sum(one.num_heads for one in load_model(tmp_path / "small").anatomy.attentions()) == 4


def test_a_translation_model_is_scored_by_bleu_with_samples_and_a_card(matched_models, parallel_corpus, tmp_path):
    pruned = prune_to(matched_models["translation"], parallel_corpus, 20, tmp_path / "small", masked=tmp_path / "zeros")
    assert pruned.quality["metric"].tolist() == ["loss", "bleu"]
    bleu = pruned.quality.iloc[1]
    assert bleu["low"] <= bleu["change"] <= bleu["high"]
    assert len(pruned.samples) == 3
    again = translate(load_model(tmp_path / "small"), pruned.samples["source"].tolist())
    assert pruned.samples["after"].tolist() == again
    card = (tmp_path / "small" / "README.md").read_text()
    assert "20 of 24 attention heads" in card
    assert run_card(tmp_path / "small").count("\n") == 1
    assert f"{bleu['before']:.4f}" in card
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "small").iterdir() if path.is_file()}
    assert len(modes) == 1


def test_zeros_compute_what_the_smaller_model_does_and_plain_transformers_load_them(
    matched_models, parallel_corpus, tmp_path
):
    model = matched_models["masked-lm"]
    pruned = prune_to(model, parallel_corpus, 4, tmp_path / "small", masked=tmp_path / "zeros")
    assert pruned.masked == tmp_path / "zeros"
    assert len(pruned.samples) == 0
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "zeros").eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        torch.testing.assert_close(plain(ids).logits, pruned.model.module(ids).logits, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(plain(ids).logits, model.module(ids).logits, atol=1e-4)
    assert run_card(tmp_path / "small") == run_card(tmp_path / "zeros")
    with pytest.raises(UserError, match="its own folder"):
        prune_to(model, parallel_corpus, 4, tmp_path / "small", masked=tmp_path / "small")


def test_an_encoder_without_a_head_is_judged_by_its_sentence_vectors(matched_models, parallel_corpus, tmp_path):
    whole = matched_models["masked-lm"]
    model = load_model(whole.module.bert, tokenizer=whole.tokenizer)
    pruned = prune_to(model, parallel_corpus, 6, tmp_path / "small")
    assert pruned.quality["metric"].tolist() == ["cosine"]
    assert pruned.quality["before"].item() == pytest.approx(1.0)
    texts, vectors = list(parallel_corpus.column("text")), []
    for one in (model, load_model(tmp_path / "small")):
        rows = [one.tokenizer(text, return_tensors="pt") for text in texts]
        with torch.no_grad():
            vectors.append(torch.stack([one.module(**row).last_hidden_state[0].mean(dim=0) for row in rows]))
    cosines = torch.cosine_similarity(*vectors)
    assert cosines.min() - 1e-6 <= pruned.quality["after"].item() <= cosines.max() + 1e-6
    random = [
        prune_to(model, parallel_corpus, 6, tmp_path / "r", by="random", seed=seed).quality["after"].item()
        for seed in range(5)
    ]
    assert pruned.quality["after"].item() >= np.mean(random)
    with pytest.raises(UserError, match="is an encoder without such a head"):
        prune(model, 6, parallel_corpus, out=tmp_path / "on", recover=2)


@pytest.mark.parametrize("name", ["masked-lm", "translation"])
def test_a_smaller_model_is_trained_on(name, matched_models, parallel_corpus, tmp_path):
    model = matched_models[name]
    before = model.digest
    keep = 4 if name == "masked-lm" else 12
    plain = prune(model, keep, parallel_corpus, out=tmp_path / "plain")
    trained = prune(model, keep, parallel_corpus, out=tmp_path / "trained", recover=30, recover_rate=5e-3)
    assert load_model(model.module, tokenizer=model.tokenizer).digest == before
    assert trained.removed == plain.removed
    assert trained.quality["after"].iloc[0] < plain.quality["after"].iloc[0]
    again = load_model(tmp_path / "trained")
    assert again.digest == trained.model.digest != plain.model.digest
    assert "trained further for 30 updates" in (tmp_path / "trained" / "README.md").read_text()
    with pytest.raises(UserError, match="Leave out --masked or --recover"):
        prune(model, keep, parallel_corpus, out=tmp_path / "more", recover=1, masked=tmp_path / "zeros")
