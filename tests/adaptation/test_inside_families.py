"""The inside view in other families and shapes: every table whole, and what it says true where that is known."""

import warnings

import pytest
import torch
import transformers
from adaptation.conftest import WORDS

from infoflow.adaptation import Choice, Classification, InsideSizes, Tagging, TaskData, inside_view, task_model
from infoflow.foundation import stream
from infoflow.models import load_model

pytestmark = pytest.mark.slow
SMALL = InsideSizes(probe_sentences=40, swap_points=1, pretraining_sentences=8, costs_on=12, scored=12)
_FAMILIES = ["bert", "gpt2", "bart", "translation"]


def pretrained(family, tokenizer, headed):
    if family == "translation":
        torch.manual_seed(0)
        size = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 64}
        small = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16, "intermediate_size": 24}
        sides = [transformers.BertConfig(**size, **small) for _ in range(2)]
        config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*sides)
        config.decoder_start_token_id, config.pad_token_id = tokenizer.cls_token_id, tokenizer.pad_token_id
        return load_model(transformers.EncoderDecoderModel(config), tokenizer=tokenizer)
    heads = {"bert": "AutoModelForMaskedLM", "gpt2": "AutoModelForCausalLM", "bart": "AutoModelForSeq2SeqLM"}
    return load_model(headed(family, heads[family]), tokenizer=tokenizer)


def sentences(num, seed):
    rng = stream("inside-families", seed)
    return [" ".join(rng.choice(WORDS, size=rng.integers(4, 9))) for _ in range(num)]


def parts(make):
    return {name: make(num, seed) for seed, (name, num) in enumerate((("train", 40), ("dev", 16), ("test", 32)))}


def tuned_of(before, task, data):
    """Two models whose bodies are a little elsewhere."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = task_model(before, task, seed)
        for parameter in module.parameters():
            parameter.data += 0.05 * torch.randn_like(parameter)
        found.append(load_model(module, tokenizer=before.tokenizer))
    return found


@pytest.mark.parametrize("family", _FAMILIES)
def test_classes_in_every_family(family, tokenizer, headed, corpus_of):
    before = pretrained(family, tokenizer, headed)

    def make(num, seed):
        labels = ["x" if i % 3 else "y" for i in range(num)]
        return corpus_of(text=sentences(num, seed), translation=sentences(num, seed + 9), label=labels)

    data = TaskData(name="made", shape="classification", labels=("x", "y"), **parts(make))
    task = Classification(task="made", labels=("x", "y"))
    after = tuned_of(before, task, data)
    tables = inside_view(before, after, task, data, pretraining=data.train, sizes=SMALL)  # a failure would warn
    assert len(tables) == 7
    reads = "decoder" if family == "gpt2" else "encoder"
    assert reads in set(tables["tuning_change"]["stack"])
    swaps = tables["layer_swaps"]
    assert set(swaps.quantity) == {"score", "pretraining-loss"}
    ends = swaps[swaps.rewound == "all"]
    assert ends["value"].tolist() == pytest.approx(ends["baseline"].tolist())
    heads = tables["tuning_heads"]
    assert heads.loc[heads["stack"] == reads, "js"].between(0, 0.7).all()
    assert heads.loc[heads["stack"] == reads, "cost_before"].notna().all()
    metrics = set(tables["label_by_layer"].metric)
    assert ("information about the output" in metrics) == (family == "gpt2")


def test_tags(tokenizer, headed, tagged):
    before = pretrained("bert", tokenizer, headed)

    def make(num, seed):
        words = [text.split() for text in sentences(num, seed)]
        return tagged(words, [["T" if word in ("cat", "dog", "house") else "O" for word in each] for each in words])

    data = TaskData(name="made", shape="tagging", labels=("O", "T"), **parts(make))
    task = Tagging(task="made", labels=("O", "T"))
    tables = inside_view(
        before, tuned_of(before, task, data), task, data, sizes=SMALL, only=["label_by_layer", "task_pruning"]
    )
    accuracy = tables["label_by_layer"].query("metric == 'accuracy' and state == 'before' and layer == 0")
    words = sum(len(text.split()) for text in sentences(32, 2))
    assert accuracy["count"].item() == words
    assert accuracy["value"].item() > accuracy["baseline"].item()
    assert len(tables["task_pruning"])


def test_choices(tokenizer, headed, corpus_of):
    before = pretrained("bert", tokenizer, headed)

    def make(num, seed):
        choices = [sentences(2 + i % 2, 100 + i) for i in range(num)]
        return corpus_of(
            text=sentences(num, seed), question=sentences(num, seed + 50), choices=choices, label=["0"] * num
        )

    data = TaskData(name="made", shape="choice", **parts(make))
    task = Choice(task="made")
    tables = inside_view(
        before, tuned_of(before, task, data), task, data, sizes=SMALL,
        only=["tuning_change", "tuning_heads", "label_by_layer", "layer_swaps", "task_pruning"],
    )  # fmt: skip
    assert set(tables) == {"tuning_change", "tuning_heads", "layer_swaps", "task_pruning"}
    assert tables["tuning_heads"]["value"].notna().all()
