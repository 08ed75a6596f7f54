"""The table of every layer against a loop over single texts with hooks of its own, and in all kinds of models."""

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
import transformers as t
from support import tiny_heads as tiny

from infoflow import analyze
from infoflow.findings import FINDINGS, evaluate
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError, stream
from infoflow.models import load_model
from infoflow.spectra import LayerSpectrum
from infoflow.studies import AnalyzeOptions
from infoflow.subjects.probing.settings import ProbingPlan
from infoflow.subjects.spectra.claims import layer_choice


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(60)


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return tiny.tokenizer_of(corpus)


def table(model, corpus, **how):
    options = PassOptions(**how.pop("options", {}))
    return measure(model, corpus, [LayerSpectrum(**how)], options)["layer_spectrum"]


def numbers(frame, column="value"):
    return frame.pivot_table(index="measure", columns="layer", values=column)


def states_by_hand(model, ids):
    """The states of one text in every layer, by hooks on the blocks of a BERT."""
    seen = []
    blocks = model.module.bert.encoder.layer
    hooks = [blocks[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))]
    hooks += [block.register_forward_hook(lambda module, args, output: seen.append(output)) for block in blocks]
    with torch.no_grad():
        model.module(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return [(one[0] if isinstance(one, tuple) else one)[0, 1:-1].double().numpy() for one in seen]


def entropy_by_hand(x):
    x = x - x.mean(0)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    shares = np.linalg.svd(x, compute_uv=False) ** 2 / len(x)
    return -sum(share * math.log(share) for share in shares if share > 1e-12)


def angles_by_hand(x):
    steps = [b - a for a, b in pairwise(x)]
    return np.mean(
        [math.acos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1)) for a, b in pairwise(steps)]
    )


def corrupted_by_hand(ids, sentence, view, frequencies):
    draws = stream("layer-spectrum", "encoder", view, sentence).random((2, len(ids) - 2))
    types = np.repeat(np.arange(len(frequencies)), frequencies)
    new = list(ids)
    for place, (chosen, which) in enumerate(draws.T, start=1):
        if chosen < 0.15:
            new[place] = int(types[int(which * len(types))])
    return new


def test_a_loop_over_single_texts(corpus):
    model = tiny.bert(corpus)
    found = table(model, corpus, sentences=25)
    reader = tiny.reader_of(model, corpus)
    entropies, angles, means, views = [], [], [], ([], [])
    for row in reader.rows[:25].tolist():
        ids = reader.sentence_rows(row, "clean", 0)["encoder"].tokens.tolist()
        assert len(ids) >= 5
        states = states_by_hand(model, ids)
        entropies.append([entropy_by_hand(x) for x in states])
        angles.append([angles_by_hand(x) for x in states])
        means.append([x.mean(0) for x in states])
        for view in (0, 1):
            sentence = int(corpus.content_ids[row])
            other = corrupted_by_hand(ids, sentence, view, reader.frequencies["encoder"])
            assert other != ids or len(ids) < 25
            views[view].append([x.mean(0) for x in states_by_hand(model, other)])
    value = numbers(found)
    assert value.loc["prompt_entropy"].to_numpy() == pytest.approx(np.mean(entropies, axis=0), abs=1e-5)
    assert value.loc["curvature"].to_numpy() == pytest.approx(np.mean(angles, axis=0), abs=1e-5)
    for layer in range(3):
        own = np.array([text[layer] for text in means])
        assert value.loc["dataset_entropy", layer] == pytest.approx(entropy_by_hand(own), abs=1e-4)
        both = np.array([text[layer] for view in views for text in view])
        both = both - both.mean(0)
        both = both / np.linalg.norm(both, axis=1, keepdims=True)
        logits = both[:25] @ both[25:].T / 0.1
        nce = math.log(25) + np.mean(np.diag(logits) - np.log(np.exp(logits).sum(1)))
        assert value.loc["infonce", layer] == pytest.approx(nce, abs=1e-4)
    assert set(found["count"]) == {25}
    for less, more in (("low", "value"), ("value", "high"), ("value", "most")):
        assert np.all(found[less].to_numpy() <= found[more].to_numpy() + 1e-9)


def test_batches_and_padding_change_nothing(corpus):
    model = tiny.bert(corpus)
    whole, small = (table(model, corpus, options={"tokens_per_batch": size}) for size in (4096, 40))
    for column in ("value", "baseline", "low", "high"):
        assert small[column].to_numpy() == pytest.approx(whole[column].to_numpy(), abs=1e-4)


def test_a_shuffled_corpus_has_the_same_numbers(corpus):
    model = tiny.llama(corpus)
    other = corpus.select(np.random.default_rng(0).permutation(len(corpus)).tolist())
    first, second = table(model, corpus), table(model, other)
    assert second["value"].to_numpy() == pytest.approx(first["value"].to_numpy(), abs=1e-5)


def mamba(vocab):
    return t.MambaForCausalLM(t.MambaConfig(vocab_size=vocab, hidden_size=16, num_hidden_layers=2, state_size=4))


def marian(vocab):
    size = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return t.MarianMTModel(
        t.MarianConfig(
            vocab_size=vocab, d_model=16, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=0, eos_token_id=3,
            decoder_start_token_id=0, **size,
        )
    )  # fmt: skip


@pytest.mark.parametrize(("family", "stacks"), [(mamba, {"decoder"}), (marian, {"encoder", "decoder"})])
def test_models_without_attention_and_with_two_stacks(family, stacks, corpus, tokenizer):
    torch.manual_seed(0)
    found = table(load_model(family(len(tokenizer)), tokenizer=tokenizer), corpus)
    assert set(found["stack"]) == stacks
    assert found.groupby("stack")["layer"].max().to_dict() == dict.fromkeys(stacks, 2)
    assert np.isfinite(found[["value", "low", "high", "baseline"]].to_numpy()).all()


def test_half_precision(corpus):
    model, half = tiny.llama(corpus), tiny.llama(corpus)
    half.module.to(torch.bfloat16)
    whole, rough = numbers(table(model, corpus)), numbers(table(half, corpus))
    for name in ("prompt_entropy", "dataset_entropy", "curvature"):
        assert rough.loc[name].to_numpy() == pytest.approx(whole.loc[name].to_numpy(), abs=0.03)


@pytest.mark.slow
def test_intervals_cover_what_other_texts_give():
    """The interval of 100 texts holds the value of 100 others about as often as two such samples agree."""
    corpus = tiny.trees(800, seed=1)
    model = tiny.bert(corpus)
    samples = [corpus.select(range(start, start + 100)) for start in range(0, 800, 100)]
    found = pd.concat([table(model, one, sentences=100).assign(sample=number) for number, one in enumerate(samples)])
    spread = found.groupby(["measure", "layer"])["value"].std()
    width = ((found["high"] - found["low"]) / 4).groupby([found["measure"], found["layer"]]).mean()
    ratio = (width / spread).groupby("measure").mean()
    assert ratio.between(0.5, 2).all(), ratio


def test_texts_that_are_too_short(corpus):
    one = corpus.select([0])
    with pytest.raises(UserError, match="no two texts of"):
        table(tiny.bert(corpus), one)


def test_analyze_by_name_and_its_report(corpus, tokenizer, tmp_path):
    model = tiny.bert(corpus)
    model.module.save_pretrained(tmp_path / "bert")
    model.require_tokenizer().save_pretrained(tmp_path / "bert")
    options = AnalyzeOptions(
        corpus="grammar", sentences=90, only=("layer_spectrum", "probe_scores"),
        probing=ProbingPlan(tasks=("upos",), seeds=1, sentences=90),
    )  # fmt: skip
    run = analyze([tmp_path / "bert"], options, out=tmp_path / "run")
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Do measures without labels find the layer that probes best?" in page
    assert "Of the measures without labels, " in page
    assert len(run.tables["layer_spectrum"]) == 2 * 3 * 6  # with its untrained control
    assert set(run.tables["layer_choice"]["measure"]) == set(run.tables["layer_spectrum"]["measure"])


# Claims and choices on invented tables.

KEYS = {"model": "masked-lm", "objective": "masked-lm", "variant": "", "architecture": "bert", "start": ""}
RISING = (0.80, 0.86, 0.92, 0.90, 0.84)


def invented(accuracy, dime, untrained=(0.9, 0.8, 0.7, 0.6, 0.5), untrained_dime=(0.5, 0.4, 0.3, 0.2, 0.1)):
    """Tables of three seeds whose curves scatter a little, and of their untrained models."""
    random, scores, spectra = np.random.default_rng(0), [], []
    for seed in (1, 2, 3):
        for trained, curve, own in ((True, accuracy, dime), (False, untrained, untrained_dime)):
            keys = KEYS | {"seed": seed, "update": -1 if trained else 0, "trained": trained, "stack": "encoder"}
            for layer in range(5):
                for labels, value in (("task", curve[layer]), ("control", 0.7 - 0.05 * layer)):
                    about = {"task": "upos", "probe": "linear", "labels": labels, "words": "all", "metric": "accuracy"}
                    number = _number(random, value)
                    scores.append({**keys, **about, "unit": "token", "share": 1.0, "layer": layer, **number})
                number = _number(random, own[layer])
                spectra.append({**keys, "measure": "dime", "alpha": 1.0, "most": 3.0, "layer": layer, **number})
    return {"probe_scores": pd.DataFrame(scores), "layer_spectrum": pd.DataFrame(spectra)}


def _number(random, value):
    value += 0.002 * random.standard_normal()
    draws = value + 0.002 * random.standard_normal(40)
    return {"value": value, "low": value - 0.004, "high": value + 0.004, "baseline": 0.1, "count": 9,
            "replicates": draws.tolist()}  # fmt: skip


def verdict(number, tables):
    scores = pd.DataFrame(
        [
            KEYS | {"seed": seed, "update": update, "trained": update == -1, "split": split, "metric": "loss",
                    "signature": "", "value": value, "low": value, "high": value, "baseline": 6.0, "count": 9,
                    "replicates": [value] * 40}
            for seed in (1, 2, 3) for update, value in ((-1, 2.0), (0, 6.0)) for split in ("validation", "test")
        ]
    )  # fmt: skip
    return evaluate({**tables, "task_scores": scores}, [FINDINGS[f"probing:S-{number}"]]).iloc[0]


def test_the_claims_hold_and_fail():
    falling = RISING[::-1]
    assert verdict(1, invented(RISING, RISING))["verdict"] == "holds"
    assert verdict(4, invented(RISING, RISING))["verdict"] == "holds"
    assert verdict(1, invented((0.8, 0.82, 0.84, 0.86, 0.9), RISING))["verdict"] == "fails"
    assert verdict(4, invented((0.8, 0.82, 0.84, 0.86, 0.9), falling))["verdict"] != "holds"
    assert verdict(4, invented(RISING, tuple(1 - one for one in RISING)))["verdict"] == "fails"


def test_controls_that_show_the_effect_leave_the_claims_open():
    assert verdict(1, invented(RISING, RISING, untrained=RISING))["verdict"] == "undetermined"
    assert verdict(4, invented(RISING, RISING, untrained_dime=RISING))["verdict"] == "undetermined"


def test_the_table_of_choices():
    tables = invented(RISING, tuple(-one for one in RISING))
    found = layer_choice(tables)["layer_choice"]
    own = found[found["trained"]]
    assert own["value"].to_numpy() == pytest.approx(-1)
    assert set(own["lowest"]) == set(own["best"]) == {2}
    assert own["at_lowest"].to_numpy() == pytest.approx(own["at_best"].to_numpy())
    assert own["baseline"].to_numpy() == pytest.approx(0.3)  # ranks 1 3 5 4 2 of accuracy against depth
    assert layer_choice({}) == {}
