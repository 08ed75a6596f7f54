"""Effects of parts against a plain loop with hooks of its own, and the properties that they must have."""

import numpy as np
import pytest
import torch
from support import patched_by_hand as hand
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
)

from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.foundation import UserError
from infoflow.heads import read_tokens
from infoflow.models import load_model
from infoflow.patching import PatchPair, patch_effects, read_pairs
from infoflow.report import further_views

pytestmark = pytest.mark.filterwarnings("ignore:The metric of")  # random weights
ALL = ("head", "query", "key", "value", "attention", "feed-forward", "residual")
STEPS = 2


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer((one.text for one in generate_grammar(600, seed=0)), vocab_size=900)


def gpt2(tokenizer, **changes):
    torch.manual_seed(1)
    size = {"n_embd": 24, "n_layer": 2, "n_head": 3, "initializer_range": 0.4} | changes
    config = GPT2Config(vocab_size=len(tokenizer), n_positions=64, **size, bos_token_id=0, eos_token_id=0)
    return load_model(GPT2LMHeadModel(config), tokenizer=tokenizer)


def bert(tokenizer):
    torch.manual_seed(2)
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=64, initializer_range=0.4, **size)
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def bart(tokenizer):
    torch.manual_seed(3)
    size = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 3}
    size |= {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_model": 24, "init_std": 0.3}
    config = BartConfig(
        vocab_size=len(tokenizer), max_position_embeddings=64, pad_token_id=tokenizer.pad_token_id,
        decoder_start_token_id=tokenizer.cls_token_id, eos_token_id=tokenizer.sep_token_id, **size,
    )  # fmt: skip
    return load_model(BartForConditionalGeneration(config), tokenizer=tokenizer)


PAIRS = read_pairs("grammar:4")


def loops(model, tokenizer):
    """The loop of every pair, tokenised anew."""
    found = []
    for pair in PAIRS if model.task != "seq2seq" else TRANSLATED:
        if model.task == "seq2seq":
            sides = [tokenizer(text, return_tensors="pt")["input_ids"] for text in (pair.clean, pair.corrupted)]
            target = tokenizer(pair.target, add_special_tokens=False)["input_ids"]
            words = [tokenizer(w, add_special_tokens=False)["input_ids"] for w in (pair.answer, pair.wrong)]
            written = torch.tensor([[tokenizer.cls_token_id, *target]])
            inputs = [{"input_ids": ids, "decoder_input_ids": written, "use_cache": False} for ids in sides]
            place = written.shape[1] - 1
        elif model.task == "causal-lm":
            texts = [text.split(" ___")[0] for text in (pair.clean, pair.corrupted)]
            ids = [[tokenizer.cls_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]] for text in texts]
            inputs = [{"input_ids": torch.tensor([one]), "use_cache": False} for one in ids]
            words, place = [tokenizer(w, add_special_tokens=False)["input_ids"] for w in (pair.answer, pair.wrong)], -1
        else:
            texts = [text.replace("___", "[MASK]") for text in (pair.clean, pair.corrupted)]
            inputs = [{"input_ids": tokenizer(text, return_tensors="pt")["input_ids"]} for text in texts]
            place = inputs[0]["input_ids"][0].tolist().index(tokenizer.mask_token_id)
            words = [tokenizer(w, add_special_tokens=False)["input_ids"] for w in (pair.answer, pair.wrong)]
        ids = [one["input_ids"] for one in inputs]
        answer, wrong = words[0][0], words[1][0]
        if ids[0].shape == ids[1].shape and answer != wrong and (model.task != "masked-lm" or
                                                                 all(len(one) == 1 for one in words)):  # fmt: skip
            found.append((ids, place, hand.Loop(model, inputs, place, answer, wrong, start=[])))
    return found


TRANSLATED = [
    PatchPair(clean=f"the {one} sleeps .", corrupted=f"the {other} sleeps .", target="lo", answer=a, wrong=b)
    for one, other, a, b in (("cat", "dog", "un", "los"), ("man", "woman", "las", "una"), ("dog", "man", "ke", "ka"))
]  # fmt: skip


@pytest.mark.parametrize(("make", "places_of"), [(gpt2, hand.gpt2), (bert, hand.bert), (bart, hand.bart)])
def test_effects_are_those_of_a_plain_loop(make, places_of, tokenizer):
    model = make(tokenizer)
    pairs = TRANSLATED if model.task == "seq2seq" else PAIRS
    table = patch_effects(model, pairs, parts=ALL, steps=STEPS)["patching_effect"]
    places, blocks = places_of(model)
    every = loops(model, tokenizer)
    assert set(table["count"]) == {len(every)}
    assert len(every) >= 3
    for _, _, loop in every:
        loop.starts = [next(iter(blocks.values()))[0]]
    scores = np.array([[loop.score(side) for side in (0, 1)] for _, _, loop in every])
    gap = (scores[:, 0] - scores[:, 1]).sum()
    fractions = {"gradient": [0.0], "integrated": [(step + 0.5) / STEPS for step in range(STEPS)]}
    largest = 0.0
    for row in table[::2].itertuples():  # of each kind
        base, sign = (1, 1) if row.direction == "denoising" else (0, -1)
        total = 0.0
        for ids, answered, loop in every:
            if row.part == "residual":
                place = _state(blocks[row.stack], row.layer, _rows(row, ids, answered, model))
            else:
                place = places[row.part, row.stack, row.kind, row.layer, row.head]
            if row.method == "exact":
                total += sign * loop.exact(place, base)
            else:
                total += sign * loop.first_order(place, base, fractions[row.method])
        largest = max(largest, abs(total - row.value * gap) / max(abs(gap), 1))
    assert largest < 2e-4
    assert table["clean"].to_numpy() == pytest.approx(scores[:, 0].mean(), abs=1e-4)


def _state(blocks, layer, rows):
    place = hand.Place(blocks[0], "in") if layer == 0 else hand.Place(blocks[layer - 1], "out")
    place.rows = rows
    return place


def _rows(row, ids, answered, model):
    """The positions of a group, from their definition."""
    length = ids[0].shape[1]
    reads = row.stack == model.anatomy.reads.name
    if not reads:
        steps = answered + 1
        return {"answer": [answered], "before": list(range(steps - 1))}.get(row.position, [])
    different = [at for at in range(length) if ids[0][0, at] != ids[1][0, at]]
    answer = [answered % length] if model.task != "seq2seq" else []
    groups = {"changed": [at for at in different if at not in answer], "answer": answer}
    rest = [at for at in range(length) if at not in different and at not in answer]
    groups |= {"before": [at for at in rest if at < different[0]], "after": [at for at in rest if at > different[0]]}
    return groups[row.position]


def swapped(model, choices, sentence="the cats sleep near the dog .", translation=None):
    return further_views()["swap"](model, read_tokens(model, sentence, translation), choices)


@pytest.mark.parametrize(("make", "places_of"), [(gpt2, hand.gpt2), (bert, hand.bert), (bart, hand.bart)])
def test_the_swap_of_a_page_is_that_of_a_plain_loop(make, places_of, tokenizer):
    model, texts = make(tokenizer), ("the cats sleep near the dog .", "the cat sleep near the dogs .")
    ids = [torch.tensor([[one.id for one in side]]) for side in (_tokens(model, text) for text in texts)]
    written = {"decoder_input_ids": torch.tensor([[2, 7, 9]])} if model.task == "seq2seq" else {}
    if written:
        translation = tokenizer.decode([7, 9])
        written = {"decoder_input_ids": torch.tensor([[one.id for one in _tokens(model, texts[0], translation)]])}
    sides = [{"input_ids": one, **written, "use_cache": False} for one in ids]
    if model.task == "masked-lm":
        sides = [{"input_ids": one["input_ids"]} for one in sides]
    at = 2
    with torch.no_grad():
        first, second = (model.module(**side).logits[0, at].softmax(0) for side in sides)
    answer, wrong = int((first - second).argmax()), int((second - first).argmax())
    loop = hand.Loop(model, sides, at, answer, wrong, start=[])
    places, blocks = places_of(model)
    for into in ("first", "second"):
        base, gap = (0, loop.score(1) - loop.score(0)) if into == "first" else (1, loop.score(0) - loop.score(1))
        for part in ("heads", "blocks", "states"):
            choices = {"other": texts[1], "part": part, "into": into, "at": str(at)}
            found = swapped(model, choices, texts[0], translation if written else None)
            assert [token for token, _ in found["chosen"]] == [answer, wrong]
            assert found["metrics"] == pytest.approx([loop.score(0), loop.score(1)], abs=2e-4)
            for grid in found["grids"]:
                for row in grid["rows"]:
                    for column, effect in zip(grid["columns"], row["effects"], strict=True):
                        if part == "states":
                            place = _state(blocks[grid["stack"]], row["layer"], [int(column)])
                        elif part == "heads":
                            place = places["head", grid["stack"], grid["kind"], row["layer"], int(column)]
                        else:
                            name = ("feed-forward", "") if column == "feed-forward" else ("attention", column)
                            if (name[0], grid["stack"], name[1], row["layer"], -1) not in places:
                                assert effect is None
                                continue
                            place = places[name[0], grid["stack"], name[1], row["layer"], -1]
                        assert effect * gap == pytest.approx(loop.exact(place, base), abs=3e-4)


def _tokens(model, text, translation=None):
    tokens = read_tokens(model, text, translation or ("x" if model.task == "seq2seq" else None)).tokens
    return list(tokens.values())[-1 if translation else 0]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "Write the other sentence"),
        ({"other": "the cat ."}, r"same number of tokens. The first has \d+, the other \d+: .*the \| cat"),
        ({"other": "the cats sleep near the dog ."}, "have the same tokens"),
        ({"other": "the cat sleep near the dog .", "part": "x"}, "part must be one of heads, blocks, states"),
        ({"other": "the cat sleep near the dog .", "at": "99"}, "at must lie in 0"),
        ({"other": "the cat sleep near the dog .", "answer": "99999"}, "A token must be an id in 0"),
    ],
)
def test_a_swap_that_cannot_be_made_says_why(choices, message, tokenizer):
    with pytest.raises(UserError, match=message):
        swapped(gpt2(tokenizer), choices)
