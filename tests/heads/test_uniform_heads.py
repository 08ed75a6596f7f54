"""A head with equal weights on all keys that it may see equals its control, in every table of heads.

The measures are those of the registry: a new table of attention is tested too, or must be named in `OTHERS`.
"""

from contextlib import contextmanager
from inspect import signature

import pytest
import torch
from support import tiny_heads as tiny
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, MistralConfig, MistralForCausalLM

from infoflow.corpus import Corpus
from infoflow.flow import measure
from infoflow.heads import Coreference, PatternScores, PositionalScores, RareTokenScores, RelationScores
from infoflow.models import load_model, tap
from infoflow.studies import AnalysisPlan, standard_measures

OTHERS = {
    "head_examples": "no control: sentences to look at",
    "head_distance": "no control: distances",
    "head_layer_distance": "the control permutes layers",
    "head_special_gradient": "gradients of weights",
    "head_probe": "what a trained probe reads from all heads together",
    "head_relevance": "effects on the prediction",
    "head_importance": "effects on the loss",
    "head_ablation": "effects on the loss",
    "head_pruning_curve": "effects on the loss",
    "encoder_context": "effects on the loss",
}
SMALL = {
    PositionalScores: {"offsets": (-2, -1, 0, 1)},
    RelationScores: {"minimum": 1},
    RareTokenScores: {"top": 0},
    PatternScores: {"length": 4, "repeats": 2, "sequences": 3},
}
CONLLU = """\
1\tAnna\t_\tPROPN\t_\t_\t2\tnsubj\t_\tEntity=(e1-person)
2\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_
3\ta\t_\tDET\t_\t_\t4\tdet\t_\tEntity=(e2-animal
4\tdog\t_\tNOUN\t_\t_\t2\tobj\t_\tEntity=e2)
5\t,\t_\tPUNCT\t_\t_\t7\tpunct\t_\t_
6\tit\t_\tPRON\t_\t_\t7\tnsubj\t_\tEntity=(e2-animal)
7\tsaw\t_\tVERB\t_\t_\t2\tconj\t_\t_
8\ther\t_\tPRON\t_\t_\t7\tobj\t_\tEntity=(e1-person)

1\tdogs\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_
2\tsleep\t_\tVERB\t_\t_\t0\troot\t_\t_
3\t.\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_

"""
EXCLUDED = ((), ("special",), ("special", "punctuation"))


def tables_of_heads():
    every = {type(one): one for one in standard_measures(AnalysisPlan())}
    return [cls for cls, one in every.items() if one.of_heads and one.name not in OTHERS]


def variants(cls):
    small = SMALL.get(cls, {})
    if "exclude_keys" in signature(cls).parameters or "exclusions" in signature(cls).parameters:
        return [cls(**small, exclude_keys=roles) for roles in EXCLUDED] + [cls(**small, average="document")]
    if cls is PatternScores:
        return [cls(**small, exclude_special=x, exclude_current=y) for x in (False, True) for y in (False, True)]
    if cls is RelationScores:
        return [
            cls(**small, multi=multi, subwords=subwords) for multi, subwords in (("per_edge", "mean"), ("any", "first"))
        ]
    if cls is Coreference:
        return [cls(candidates=candidates) for candidates in ("words", "mentions")]
    return [cls(**small)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("uniform") / "two.conllu"
    path.write_text(CONLLU)
    return Corpus.from_conllu(path, misc=("Entity",))


def causal(corpus, config, model):
    tokenizer = tiny.tokenizer_of(corpus, 60)
    torch.manual_seed(0)
    shape = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 32, "max_position_embeddings": 64,
        "sliding_window": 3,
    }  # fmt: skip
    return load_model(model(config(**shape)), tokenizer=tokenizer)


MODELS = {
    "bert": lambda corpus: tiny.bert(corpus, size=60),
    "llama": lambda corpus: tiny.llama(corpus, size=60),
    "sliding window": lambda corpus: causal(corpus, MistralConfig, MistralForCausalLM),
    "window in one layer of two": lambda corpus: causal(
        corpus,
        lambda **kw: Gemma3TextConfig(**kw, layer_types=["sliding_attention", "full_attention"]),
        Gemma3ForCausalLM,
    ),
}


@contextmanager
def uniform_heads(model):
    """Every head of the model attends to all keys that its mask leaves alike."""

    def level(call):
        bias = (
            None
            if call.position_bias is None
            else call.position_bias.clamp(max=0).masked_fill(call.position_bias > -1e3, 0)
        )
        return call.edited(query=torch.zeros_like(call.query), position_bias=bias)

    with tap(model, on_attention=level):
        yield


def differences(frame):
    """Largest difference between a score of attention and its control, in a table that has rows."""
    if "pattern" in frame:
        frame = frame[frame["pattern"] != "copying"]
    frame = frame.dropna(subset=["value"])
    assert len(frame)
    return (frame["value"] - frame["uniform" if "uniform" in frame else "baseline"]).abs().max()


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_a_uniform_head_equals_its_control(name, side, corpus):
    model = MODELS[name](corpus)
    model.tokenizer.padding_side = side
    with uniform_heads(model):
        for cls in tables_of_heads():
            for one in variants(cls):
                frame = measure(model, corpus, [one])[one.name]
                assert differences(frame) < 1e-6, (one.name, vars(one))


def test_a_uniform_head_equals_its_control_in_cross_attention(matched_models, parallel_corpus):
    model = matched_models["translation"]
    with uniform_heads(model):
        for cls in tables_of_heads():
            for one in variants(cls):
                frame = measure(model, parallel_corpus, [one])[one.name]
                if cls not in (RelationScores, Coreference):  # for which it has no annotation
                    assert differences(frame) < 1e-6, (one.name, vars(one))
