"""Properties of effects: all parts are everything, idle ones nothing, linear sums are exact; circuits; bad input."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support.compiled import HeadProgram, Program, compiled, random_program, sampled
from transformers import GPT2Config, GPT2LMHeadModel

from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.patching import PatchPair, patch_effects, read_pairs

pytestmark = pytest.mark.filterwarnings("ignore:The metric of")


def pairs_of(model, program, num=48, seed=5):
    """Sentences that the model writes, each with one other word; the answers: words whose logits it changes most."""
    found = []
    words = [f"w{number}" for number in range(program.words)]
    random = np.random.default_rng(seed)
    for text in sampled(model, program, num, seed):
        clean = text.split()[: program.length - 1]
        corrupted = list(clean)
        place = len(clean) - 1 - int(random.integers(4 if random.random() < 0.7 else len(clean)))
        corrupted[place] = str(random.choice([word for word in words if word != clean[place]]))
        ids = [model.tokenizer(" ".join(side), return_tensors="pt")["input_ids"] for side in (clean, corrupted)]
        with torch.no_grad():
            one, other = (model.module(each).logits[0, -1] for each in ids)
        difference = one - other
        if difference.max() - difference.min() > 1e-3:
            answer, wrong = model.tokenizer.convert_ids_to_tokens([int(difference.argmax()), int(difference.argmin())])
            found.append(PatchPair(clean=" ".join(clean), corrupted=" ".join(corrupted), answer=answer, wrong=wrong))
    return found


PROGRAM = Program(
    layers=[
        [HeadProgram(attends="offset", offset=-1, evidence=3.0), HeadProgram(attends="random")],
        [HeadProgram(attends="offset", offset=-2, evidence=2.0), HeadProgram(attends="even")],
    ]
)


@pytest.fixture(scope="module")
def linear():
    model = compiled(PROGRAM)
    pairs = pairs_of(model, PROGRAM, 60)
    return model, pairs, patch_effects(model, pairs, parts=("head", "feed-forward", "residual"), limit=None)


def exact(table, **chosen):
    own = table[(table["method"] == "exact") & (table["direction"] == "denoising")]
    for name, value in chosen.items():
        own = own[own[name] == value]
    return own


def test_the_heads_that_matter_carry_everything_and_others_nothing(linear):
    _, pairs, tables = linear
    assert len(pairs) > 20
    table = exact(tables["patching_effect"], part="head").set_index(["layer", "head"])["value"]
    assert table[0, 0] + table[1, 0] == pytest.approx(1, abs=1e-4)
    assert abs(table[0, 1]) < 1e-4
    assert abs(table[1, 1]) < 1e-4


def test_first_order_effects_of_a_linear_part_are_exact_and_sum_to_all(linear):
    """Logits are a sum over heads, so the gradient is the same everywhere."""
    table = linear[2]["patching_effect"]
    heads = table[(table["part"] == "head") & (table["direction"] == "denoising")]
    wide = heads.pivot_table(index=["layer", "head"], columns="method", values="value")
    assert wide["gradient"].to_numpy() == pytest.approx(wide["exact"].to_numpy(), abs=1e-3)
    assert wide["gradient"].sum() == pytest.approx(1, abs=1e-3)


def test_all_parts_are_everything(linear):
    table = linear[2]["patching_faithfulness"]
    assert table[table["parts"] == table["total"]]["value"].to_numpy() == pytest.approx(1, abs=1e-4)
    best = table[(table["ranking"] == "exact") & (table["parts"] == 2)].iloc[0]
    assert best["value"] == pytest.approx(1, abs=1e-3)
    assert best["baseline"] < 0.9


def test_the_last_state_of_the_answer_is_everything(linear):
    table = exact(linear[2]["patching_effect"], part="residual", position="answer")
    assert table[table["layer"] == 2]["value"].to_numpy() == pytest.approx(1, abs=1e-4)


def test_a_value_of_an_input_with_the_same_metric_changes_little(linear):
    """The control of the whole last state is a swap between inputs of one metric."""
    table = exact(linear[2]["patching_effect"], part="residual", position="answer")
    assert abs(table[table["layer"] == 2]["baseline"].iloc[0]) < 0.2


def test_batches_do_not_matter(linear):
    model, pairs, _ = linear
    some = pairs[:12]
    tables = [patch_effects(model, some, parts=("head", "key"), tokens_per_batch=size) for size in (40, 4096)]
    one, other = (table["patching_effect"]["value"].to_numpy() for table in tables)
    assert one == pytest.approx(other, abs=1e-4)


def test_the_rank_correlation_is_the_one_of_scipy(linear):
    """Also with ties: states before the first difference have no effect at all."""
    effects, agreement = (linear[2][name] for name in ("patching_effect", "patching_agreement"))
    rows = agreement[agreement["statistic"] == "spearman"]
    assert len(rows) >= 4
    for row in rows.itertuples():
        own = effects[(effects["part"] == row.part) & (effects["direction"] == row.direction)]
        one, other = (own[own["method"] == method]["value"].to_numpy() for method in ("exact", row.method))
        assert row.value == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)


def auc(values, matters):
    best, rest = values[matters], values[~matters]
    wins = (best[:, None] > rest).mean() + 0.5 * (best[:, None] == rest).mean()
    return float(wins)


@pytest.mark.slow
def test_effects_find_the_heads_that_matter_in_compiled_circuits():
    """AUC over 12 programs, with an interval over programs."""
    found = {"exact": [], "gradient": [], "integrated": []}
    for seed in (0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14):
        program = random_program(seed)
        model, matters = compiled(program), program.matters()
        pairs = pairs_of(model, program, 40)
        table = patch_effects(model, pairs, parts=("head",), limit=None)["patching_effect"]
        table = table[table["direction"] == "denoising"]
        for method, scores in found.items():
            own = table[table["method"] == method]
            truth = np.array([matters[key] for key in zip(own["layer"], own["head"], strict=True)])
            scores.append(auc(own["value"].abs().to_numpy(), truth))
    print({name: (round(float(np.mean(one)), 3), np.round(one, 2).tolist()) for name, one in found.items()})
    for scores in found.values():
        half = 2.2 * np.std(scores, ddof=1) / np.sqrt(len(scores))
        assert np.mean(scores) - half > 0.8
    assert np.mean(found["exact"]) > 0.9


GOOD = {"clean": "the cat", "corrupted": "the dog", "answer": "sleeps"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.jsonl", '{"clean": "a"}\n', "line 1: corrupted must be a text"),
        ("a.jsonl", '{"clean": "a", "corrupted": "b"}\n', "line 1: there is no answer"),
        ("a.jsonl", '{"clean": "a ___ ___", "corrupted": "b", "answer": "c"}\n', "line 1: clean has several blanks"),
        (
            "a.jsonl",
            '{"clean": "a", "corrupted": "b", "answer": "c", "wrong": "c"}\n',
            "line 1: answer and wrong are both",
        ),
        ("a.jsonl", "[1]\n", "line 1"),
        ("a.tsv", "clean\tanswer\na\tb\n", "line 2: corrupted must be a text"),
        ("a.tsv", "clean\tcorrupted\tanswer\na\tb\n", "line 2: expected 3 cells"),
        ("a.csv", "clean,corrupted,answer\n", "holds no pair"),
        ("a.tsv", "good\tbad\nHe sleeps\tHe sleep\n", "do not differ before their last word"),
        ("a.txt", "a b\n", "Pairs are read from"),
    ],
)
def test_malformed_files_are_refused_with_their_line(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said):
        read_pairs(tmp_path / name)


def test_sentences_of_blimp_become_pairs(tmp_path):
    path = tmp_path / "blimp.tsv"
    path.write_text("good\tbad\nThe cat looks sick.\tThe cats looks sick.\nHe runs.\tHe run.\n", encoding="utf-8")
    (pair,) = read_pairs(path)
    assert (pair.clean, pair.corrupted, pair.answer, pair.wrong) == (
        "The cat ___ sick.",
        "The cats ___ sick.",
        "looks",
        "",
    )


def test_a_missing_file_and_a_model_without_a_head_are_refused(linear):
    with pytest.raises(UserError, match="There is no file"):
        read_pairs("nowhere.tsv")
    model, pairs, _ = linear
    with pytest.raises(UserError, match="There is no part"):
        patch_effects(model, pairs, parts=("heads",))
    with pytest.raises(UserError, match="at least 1"):
        patch_effects(model, pairs, steps=0)
    encoder = load_model(model.module.transformer, tokenizer=model.tokenizer)
    with pytest.raises(UserError, match="no language-model head"):
        patch_effects(encoder, pairs)


def test_pairs_of_unequal_length_are_left_out_and_counted(linear):
    model, pairs, _ = linear
    odd = PatchPair(clean="w1 w2", corrupted="w1 w2 w3", answer="w1")
    table = patch_effects(model, [*pairs[:6], odd], parts=("head",))["patching_effect"]
    assert set(table["count"]) == {6}
    with pytest.raises(UserError, match="different numbers of tokens"):
        patch_effects(model, [odd], parts=("head",))


def test_half_precision_agrees(linear):
    _, pairs, tables = linear
    model = load_model(compiled(PROGRAM).module.to(torch.bfloat16), tokenizer=linear[0].tokenizer)
    half = patch_effects(model, pairs, parts=("head",), limit=None)["patching_effect"]
    one = exact(tables["patching_effect"], part="head")["value"].to_numpy()
    assert exact(half)["value"].to_numpy() == pytest.approx(one, abs=0.05)


def test_the_answer_without_a_wrong_one_is_a_log_probability():
    torch.manual_seed(0)
    tokenizer = compiled(PROGRAM).require_tokenizer()
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=16, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5
    )
    model = load_model(GPT2LMHeadModel(config), tokenizer=tokenizer)
    pair = PatchPair(clean="w1 w2", corrupted="w3 w2", answer="w4")
    table = patch_effects(model, [pair], parts=("head",))["patching_effect"]
    ids = tokenizer("w1 w2", return_tensors="pt")["input_ids"]
    expected = model.module(ids).logits[0, -1].log_softmax(-1)[tokenizer.convert_tokens_to_ids("w4")]
    assert table["clean"].iloc[0] == pytest.approx(expected.item(), abs=1e-5)
