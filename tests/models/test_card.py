"""Cards in the eyes of the model hub: base model, licence and language, scores, and names that are not markup."""

import pytest
from huggingface_hub import ModelCard
from support.writable_hub import card_errors
from transformers import BertConfig, BertForMaskedLM

from infoflow.corpus import card_facts
from infoflow.models import model_card, save_model

CONFIG = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


@pytest.fixture
def module():
    return BertForMaskedLM(BertConfig(**CONFIG))


def read(text: str) -> dict:
    assert card_errors(text, "model") == []
    return ModelCard(text).data.to_dict()


def test_a_new_model_has_what_is_known_of_its_corpus_and_no_guesses(module):
    known = read(model_card(module, title="masked-lm, seed 0", tags=["masked-lm"], known=card_facts("tatoeba-en-fr")))
    assert known == {
        "language": ["en", "fr"],
        "license": "cc-by-2.0",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["infoflow", "masked-lm"],
    }
    unknown = model_card(module, known=card_facts("hf:owner/texts:train[:10%]"))
    assert read(unknown)["datasets"] == ["owner/texts"]
    assert "The licence and language depend on the text" in unknown
    assert not {"language", "license", "base_model"} & set(read(unknown))
    assert card_facts("grammar:500") == card_facts("/home/me/tatoeba-en-fr") == {}


def test_a_changed_model_names_its_base_on_the_hub_but_no_local_folder(module, tmp_path):
    module.config._name_or_path = "owner/model"
    assert read(model_card(module))["base_model"] == "owner/model"
    facts = {"language": ["fr"], "license": "mit"}
    save_model(module, tmp_path, card={"known": facts})
    loaded = BertForMaskedLM.from_pretrained(tmp_path)
    pruned, tuned = read(model_card(loaded, own_weights=False)), read(model_card(loaded))
    assert (pruned["base_model"], pruned["language"], pruned["license"]) == ("owner/model", ["fr"], "mit")
    assert tuned["base_model"] == "owner/model"
    assert not {"language", "license"} & set(tuned)
    (tmp_path / "README.md").write_text("---\nbase_model: [/home/me/model]\nlicense: {a: b}\nlanguage: [\n---\n")
    assert "base_model" not in read(model_card(loaded, own_weights=False))
    for name in ("/gone/model", "./gone", "a b", ""):
        loaded.config._name_or_path = name
        assert "base_model" not in read(model_card(loaded))


def test_scores_with_intervals_are_results_for_the_hub(module):
    scores = [
        {"data": "my task: test", "metric": "accuracy", "value": 0.75, "note": "95% interval [0.7000, 0.8000]"},
        {"data": "my task: test", "metric": "macro_f1", "value": 0.5, "note": "95% interval [0.4000, 0.6000]"},
    ]
    text = model_card(module, title="tuned", results=scores)
    (card,) = read(text)["model-index"]
    assert [one["value"] for one in card["results"][0]["metrics"]] == [0.75, 0.5]
    assert card["results"][0]["metrics"][0]["name"] == "accuracy, 95% interval [0.7000, 0.8000]"
    assert ModelCard(text).data.metrics == ["accuracy", "macro_f1"]


def test_a_name_can_neither_add_metadata_nor_markup(module):
    text = model_card(module, title="a\n---\nlicense: mit\n<img src=x> ![x](http://x)", tags=["b: c\n- d", "# e"])
    assert text.count("\n---\n") == 1
    assert "license" not in ModelCard(text).data.to_dict()
    assert ModelCard(text).data.tags == ["infoflow", "b: c\n- d", "# e"]
    heading = next(line for line in text.splitlines() if line.startswith("# "))
    assert heading == r"# a --- license: mit \<img src=x\> \!\[x\](http://x)"
