"""Models whose heads cannot be read: hybrid, recurrent and attention-free families. Their states can."""

import numpy as np
import pytest
import torch
import transformers

import infoflow
from infoflow.foundation import UserError
from infoflow.heads import Confidence, Entropy
from infoflow.lenses import Lens
from infoflow.models import load_model, tap
from infoflow.pruning import prune_to
from infoflow.representations import IntraSentence, LayerDistance

_SIZES = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 24}
_HEADS = {"num_attention_heads": 2}
CASES = {
    "MambaForCausalLM": {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "state_size": 4},
    "Mamba2ForCausalLM": _SIZES | {"num_heads": 4, "head_dim": 8, "n_groups": 1, "state_size": 4, "chunk_size": 8},
    "RwkvForCausalLM": {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "context_length": 64},
    "FNetForMaskedLM": _SIZES,
    "ConvBertForMaskedLM": _SIZES | _HEADS,
    "BitNetForCausalLM": _SIZES | _HEADS | {"num_key_value_heads": 2},
    "XLNetLMHeadModel": {"vocab_size": 40, "d_model": 16, "n_layer": 3, "n_head": 2, "d_inner": 24},
}
CAUSAL = {"MambaForCausalLM", "Mamba2ForCausalLM", "RwkvForCausalLM", "BitNetForCausalLM"}


def build(name):
    family = getattr(transformers, name)
    torch.manual_seed(0)
    return family(family.config_class(**CASES[name] | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2})).eval()


@pytest.fixture(params=CASES)
def model(request):
    return load_model(build(request.param))


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("".join(f"w{i % 7} w{i % 5} w{i % 3} w{i % 11}\n" for i in range(60)))
    return infoflow.load_corpus(path)


def test_states_are_those_of_transformers(model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10]])
    with torch.no_grad(), tap(model, hidden=True) as seen:
        own = model.module(ids, output_hidden_states=True).hidden_states
    (stack,) = model.anatomy.stacks
    ours = seen.hidden[stack.name]
    assert len(ours) == 4
    assert stack.causal == (type(model.module).__name__ in CAUSAL)
    shift = 0 if torch.equal(ours[0], own[0]) else 1  # Mamba and RWKV leave out the embeddings
    for mine, its in zip(ours[shift:3], own[: 3 - shift], strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=0)


def test_measures_of_states_run_and_those_of_heads_say_why_not(model, corpus):
    model = load_model(model.module, tokenizer=words())
    found = infoflow.measure(model, corpus, [Confidence(), IntraSentence(), LayerDistance(occurrences=200)])
    assert "head_confidence" not in found or found["head_confidence"].empty
    distances = found["layer_distance"]
    assert sorted(set(distances["layer"])) == [0, 1, 2]
    assert np.isfinite(distances["value"]).all()
    with pytest.raises(UserError, match="heads cannot be read"):
        infoflow.measure(model, corpus, [Confidence()])


def test_a_lens_reads_a_recurrent_model(corpus):
    model = load_model(build("MambaForCausalLM"), tokenizer=words())
    lens = infoflow.measure(model, corpus, [Lens(tuned=False, evaluated=100)])["lens"]
    top = lens[(lens["layer"] == 3) & (lens["metric"] == "kl")]
    assert (top["value"].abs() < 1e-5).all()


def words():
    from tokenizers import Tokenizer, models, pre_tokenizers

    core = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(["[PAD]", *_WORDS])}, unk_token="[PAD]")
    )
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]")


_WORDS = [f"w{index}" for index in range(39)]


def test_pruning_and_measures_of_heads_say_once_that_there_are_none(corpus, tmp_path):
    model = load_model(build("FNetForMaskedLM"), tokenizer=words())
    with pytest.raises(UserError, match=r"^fnet has no heads to remove: its heads cannot be read\.$"):
        prune_to(model, corpus, 1, tmp_path / "out")
    with pytest.raises(UserError, match=r"^No measure applies to fnet: its heads cannot be read\.$"):
        infoflow.measure(model, corpus, [Confidence(), Entropy()])
