"""Loading: folders keep head and weights, nothing random slips in, and every mistake has its message."""

import inspect
import json
import pickle
from pathlib import Path

import pytest
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from infoflow.foundation import UserError
from infoflow.models import TARGET_FOLDER, load_model, sequence_losses


@pytest.fixture
def word_tokenizer():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
    core = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="[PAD]"))
    core.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]"
    )


def test_a_saved_model_comes_back_with_its_head(build_module, family, models, rows, tmp_path):
    module = build_module(family)
    module.save_pretrained(tmp_path / family)
    loaded = load_model(tmp_path / family)
    assert type(loaded.module) is type(module)
    assert not loaded.module.training
    assert loaded.task == models(family).task
    assert loaded.name == family
    assert loaded.tokenizer is None
    inputs = {"input_ids": torch.tensor([rows[0]])}
    if loaded.task == "seq2seq":
        inputs["decoder_input_ids"] = torch.tensor([rows[1]])
    with torch.no_grad():
        assert torch.equal(loaded.module(**inputs).logits, module(**inputs).logits)
    assert loaded.digest == load_model(module).digest
    assert {name for name, _ in loaded.module.named_parameters()} == {name for name, _ in module.named_parameters()}


def test_the_encoders_random_pooler_is_removed(build_module, tmp_path):
    """`from_pretrained` adds it back though the checkpoint lacks it."""
    build_module("encoder-decoder").save_pretrained(tmp_path)
    raw = transformers.EncoderDecoderModel.from_pretrained(tmp_path)
    assert any("pooler" in name for name, _ in raw.named_parameters())
    loaded = load_model(tmp_path)
    assert not any("pooler" in name for name, _ in loaded.module.named_parameters())
    assert loaded.anatomy.num_parameters("pooler") == 0


def test_a_trained_pooler_stays(build_module, tmp_path):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "with")
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "without")
    assert load_model(tmp_path / "with").anatomy.num_parameters("pooler") == 8 * 8 + 8
    assert load_model(tmp_path / "without").anatomy.num_parameters("pooler") == 0
    assert load_model(tmp_path / "without").task == "encoder"


def test_tokenizers_lie_beside_the_weights(build_module, word_tokenizer, tmp_path):
    build_module("encoder-decoder").save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path)
    word_tokenizer.save_pretrained(tmp_path / TARGET_FOLDER)
    loaded = load_model(tmp_path)
    assert loaded.tokenizer("a b")["input_ids"] == word_tokenizer("a b")["input_ids"]
    assert loaded.target_tokenizer is not None


def test_a_tokenizer_can_be_given(build_module, word_tokenizer, tmp_path):
    module = build_module("bert")
    assert load_model(module).tokenizer is None
    assert load_model(module, tokenizer=word_tokenizer).tokenizer is word_tokenizer
    word_tokenizer.save_pretrained(tmp_path)
    assert load_model(module, tokenizer=tmp_path).tokenizer.mask_token_id == 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no tokenizer"):
        load_model(module, tokenizer=tmp_path / "empty")


def test_a_tokenizer_that_does_not_fit_is_refused(build_module, word_tokenizer):
    word_tokenizer.add_tokens([f"new{index}" for index in range(50)])
    with pytest.raises(UserError, match="does not fit bert: its largest token id is 63, the model's 39"):
        load_model(build_module("bert"), tokenizer=word_tokenizer)


def test_text_without_tokenizer_is_refused(models):
    with pytest.raises(UserError, match="has no tokenizer"):
        models("bert").require_tokenizer()


def test_weights_saved_in_half_precision_are_read_in_float32(build_module, tmp_path):
    build_module("llama").bfloat16().save_pretrained(tmp_path)
    assert load_model(tmp_path).module.dtype == torch.float32
    assert load_model(tmp_path, dtype=torch.bfloat16).module.dtype == torch.bfloat16


def test_a_head_that_was_never_saved_is_refused(build_module, tmp_path):
    build_module("bert").bert.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForMaskedLM"]}))
    with pytest.raises(UserError, match=r"lacks \d+ weights of BertForMaskedLM, which would be random: cls"):
        load_model(tmp_path)


def test_without_architectures_the_bare_model_is_read(build_module, tmp_path):
    build_module("bert").bert.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path).task == "encoder"


class Payload:
    def __reduce__(self):
        return Path("/tmp/infoflow-was-here").touch, ()


def test_nothing_is_unpickled(build_module, tmp_path):
    build_module("bert").config.save_pretrained(tmp_path)
    with (tmp_path / "pytorch_model.bin").open("wb") as file:
        pickle.dump(Payload(), file)
    with pytest.raises(UserError, match="Use the model in the safetensors format"):
        load_model(tmp_path)


def test_bin_files_with_plain_tensors_are_read(build_module, tmp_path):
    module = build_module("gpt2")
    module.config.architectures = ["GPT2LMHeadModel"]
    module.config.save_pretrained(tmp_path)
    torch.save(module.state_dict(), tmp_path / "pytorch_model.bin")
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.module.lm_head.weight, module.lm_head.weight)


def test_remote_code_never_runs(tmp_path):
    code = "from pathlib import Path\nraise RuntimeError('remote code ran')\n"
    (tmp_path / "modeling_evil.py").write_text(code)
    config = {"model_type": "evil", "architectures": ["EvilModel"]}
    (tmp_path / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoConfig": "modeling_evil.Evil"}}))
    with pytest.raises(UserError, match="cannot be read") as caught:
        load_model(tmp_path)
    assert "remote code ran" not in str(caught.value)


def test_an_unknown_class_is_refused(build_module, tmp_path):
    build_module("bert").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["BertForNothing"]}))
    with pytest.raises(UserError, match="class BertForNothing, which transformers"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./no/such/folder", "No model folder at"),
        ("no/such/folder", "No model folder at"),
        ("bert-of-nowhere", "the model hub provided no model of that name"),
    ],
)
def test_a_place_that_does_not_exist(source, message):
    with pytest.raises(UserError, match=message):
        load_model(source)


def test_something_that_is_no_model():
    load = inspect.unwrap(load_model)  # in tests beartype would speak first
    with pytest.raises(UserError, match=r"Got a torch module of another kind \(Linear\)\."):
        load(torch.nn.Linear(2, 2))
    for given, words in ((None, "nothing"), (3, "3"), (["a"], r'\["a"\]')):
        with pytest.raises(UserError, match=f"Got {words}\\."):
            load(given)


def test_a_folder_or_file_that_is_no_model(tmp_path):
    with pytest.raises(UserError, match=r"has no config\.json"):
        load_model(tmp_path)
    file = tmp_path / "notes.txt"
    file.write_bytes(b"\x00\x01")
    with pytest.raises(UserError, match=r"a folder, or a \.gguf file"):
        load_model(file)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"\x00\x01")
    with pytest.raises(UserError, match=r"cannot be read|needs gguf"):
        load_model(broken)


def test_the_folder_of_a_run_names_its_models(tmp_path):
    folder = tmp_path / "models" / "masked-lm" / "seed-0"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"there are models in models/masked-lm/seed-0: name one of these"):
        load_model(tmp_path)


def test_a_damaged_checkpoint_has_one_clear_message(build_module, tmp_path):
    build_module("bert").save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match="cannot be read"):
        load_model(tmp_path)


def test_a_device_that_is_not_there():
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with pytest.raises(UserError, match="--device must name a device"):
        load_model(transformers.BertModel(config), device="abacus")


def test_a_causal_head_on_an_encoder_that_sees_the_future_is_refused():
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    with pytest.raises(UserError, match="is_decoder=True"):
        load_model(transformers.BertLMHeadModel(config))
    config.is_decoder = True
    assert load_model(transformers.BertLMHeadModel(config)).task == "causal-lm"


def test_a_model_for_pretraining_keeps_its_token_head(rows):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    model = load_model(transformers.BertForPreTraining(config))
    assert model.task == "masked-lm"
    ids = torch.tensor([rows[0]])
    with torch.no_grad():
        logits = model.module(ids).prediction_logits
    expected = torch.nn.functional.cross_entropy(logits[0], ids[0])
    assert sequence_losses(model, ids, labels=ids).mean == pytest.approx(float(expected), rel=1e-5)
