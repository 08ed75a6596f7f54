"""Tuning from end to end: folders that transformers loads, the grid, several seeds, what is refused."""

import dataclasses
import json

import numpy as np
import pytest
import torch
import transformers
from adaptation.small_task import small_data, small_model, small_tokenizer
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from support.writable_hub import card_errors

from infoflow.adaptation import TASK_ANSWERS, TASK_SCORES, Generation, TaskData, TuneConfig, load_tuned, tune
from infoflow.corpus import Corpus
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.results import write_table
from infoflow.training import TrainingHook

pytestmark = pytest.mark.slow

METHODS = ("full", "frozen", "top", "decay", "lora")  # of a mix of layers plain transformers reads the last alone


def config(**settings) -> TuneConfig:
    chosen = {
        "epochs": 2,
        "head_epochs": 2,
        "batch_examples": 16,
        "learning_rates": (1e-2,),
        "seeds": (0,),
        "layers": 1,
    }
    return TuneConfig(**chosen | settings)


@pytest.fixture(scope="module")
def data():
    return small_data()


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.mark.parametrize("method", METHODS)
def test_the_folder_is_the_tuned_model(method, data, model, tmp_path):
    """Logits of the Auto class on the folder are those that the answers were made of, adapters merged."""
    tuned = tune(model, data, config(method=method), tmp_path)
    (one,) = tuned.models
    assert one.folder == tmp_path / "first-half" / method / "seed-0"
    module = transformers.AutoModelForSequenceClassification.from_pretrained(one.folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(one.folder)
    assert module.config.id2label == {0: "first", 1: "last"}
    texts = list(data.test.column("text"))
    inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        probabilities = module(**inputs).logits.softmax(-1)
    answers = tuned.answers.set_index("example")
    assert np.allclose(probabilities.max(-1).values, answers["probability"], atol=1e-5)
    assert [module.config.id2label[int(best)] for best in probabilities.argmax(-1)] == list(answers["said"])
    assert not [name for name in load_file(one.folder / "model.safetensors") if "lora" in name or "base_layer" in name]
    assert card_errors((one.folder / "README.md").read_text(), "model") == []
    card = ModelCard.load(one.folder / "README.md").data
    scores = tuned.scores.set_index(["part", "metric"])
    for result in card.eval_results:
        row = scores.loc[result.dataset_name.removeprefix("first-half "), result.metric_type]
        assert result.metric_value == row["value"]
        assert result.metric_name.endswith(f"95% interval [{row['low']:.4f}, {row['high']:.4f}]")
    assert len(card.eval_results) == len(scores)


def test_what_each_method_changes(data, model, tmp_path):
    before = {name: p.detach() for name, p in model.module.named_parameters() if name.startswith("bert.")}

    def changed(method: str) -> set[str]:
        (one,) = tune(model, data, config(method=method), tmp_path).models
        after = load_file(one.folder / "model.safetensors")
        return {name for name, value in before.items() if not torch.equal(after[name], value)}

    upper = {name for name in before if ".layer.1." in name}
    assert changed("full") == changed("decay") == set(before)
    assert changed("frozen") == changed("mix") == set()
    assert changed("top") == upper
    matrices = {f"bert.encoder.layer.{i}.attention.self.{part}.weight" for i in (0, 1) for part in ("query", "value")}
    assert changed("lora") == matrices


def test_scores_and_answers_fill_their_tables(data, model, tmp_path):
    tuned = tune(model, data, config(seeds=(0, 1), answers=5), tmp_path, strategy="continued")
    for frame, schema in ((tuned.scores, TASK_SCORES), (tuned.answers, TASK_ANSWERS)):
        write_table(tmp_path / f"{schema.name}.parquet", frame, schema)
    assert set(tuned.scores["strategy"]) == {"continued"}
    assert set(tuned.scores["tuning_seed"]) == {0, 1}
    main = tuned.scores[tuned.scores["main"]]
    assert list(main["part"]) == ["dev", "test"] * 2
    assert (tuned.answers.groupby("tuning_seed").size() == 5).all()
    of_seeds = [list(rows["example"]) for _, rows in tuned.answers.groupby("tuning_seed")]
    assert of_seeds[0] == of_seeds[1]
    said = tuned.answers.iloc[0]
    sentence = data.test[int(said["example"])]
    assert (said["text"], said["wanted"]) == (sentence.text, sentence.label)
    assert (said["right"]) == (said["said"] == said["wanted"])


def test_the_rate_is_the_best_on_dev_of_the_first_seed(model, tmp_path):
    rates, data = (1e-5, 1e-2), small_data(200)
    tuned = tune(model, data, config(learning_rates=rates, seeds=(0, 1), epochs=4), tmp_path / "grid")
    tried = {
        rate: tune(model, data, config(learning_rates=(rate,), epochs=4), tmp_path / str(rate)).models[0].facts["dev"]
        for rate in rates
    }
    assert tuned.models[0].facts["rates"] == {str(rate): pytest.approx(value) for rate, value in tried.items()}
    assert tried[1e-2] > tried[1e-5]
    assert {one.learning_rate for one in tuned.models} == {1e-2}
    kept = {path.name for path in (tmp_path / "grid" / "first-half" / "full").iterdir()}
    assert kept == {"seed-0", "seed-1", "tuning.json"}  # nothing of the rate that was not chosen


def test_a_task_is_learned_and_shuffled_labels_are_not(tmp_path):
    data, model = small_data(400), small_model()
    learned = tune(model, data, config(epochs=6), tmp_path)
    control = tune(model, data, config(epochs=6, control="shuffled-labels"), tmp_path)
    accuracy = [one.scores.query("main and part == 'test'")["value"].item() for one in (learned, control)]
    assert accuracy[0] > 0.9
    assert accuracy[1] < 0.85  # what labels and words have in common by chance is learned too
    assert control.models[0].folder.parent.name == "full-shuffled-labels"
    assert set(control.scores["control"]) == {"shuffled-labels"}


def test_a_finished_tuning_is_read_and_seeds_may_be_added(data, model, tmp_path):
    first = tune(model, data, config(), tmp_path)
    stamp = (first.models[0].folder / "model.safetensors").stat().st_mtime_ns
    more = tune(model, data, config(seeds=(0, 1)), tmp_path)
    assert (more.models[0].folder / "model.safetensors").stat().st_mtime_ns == stamp
    assert len(more.models) == 2
    assert more.scores[more.scores["tuning_seed"] == 0].equals(first.scores)


def test_other_settings_are_refused(data, model, tmp_path):
    tune(model, data, config(), tmp_path)
    with pytest.raises(UserError, match=r"other settings: epochs was 2, is 3"):
        tune(model, data, config(epochs=3), tmp_path)
    with pytest.raises(UserError, match="model was"):
        tune(small_model("causal-bert"), data, config(), tmp_path)


def test_a_tuned_model_is_loaded_and_measured_again(data, model, tmp_path):
    tuned = tune(model, data, config(), tmp_path)
    again = load_tuned(tuned.models[0].folder)
    assert (again.task, again.seed, again.learning_rate) == (tuned.task, 0, 1e-2)
    scores = again.score(data.test, tuned.train)
    rows = tuned.scores[tuned.scores["part"] == "test"]
    assert [score.metric for score in scores] == list(rows["metric"])
    assert [score.row["value"] for score in scores] == pytest.approx(list(rows["value"]))
    (tmp_path / "task.json").write_text("{}")
    with pytest.raises(UserError, match=r"task\.json"):
        load_tuned(tmp_path)


class CountSaves(TrainingHook):
    """How often a training is saved: so often what a hook knows is asked for."""

    name = "count-saves"
    saves = 0

    def state_dict(self) -> dict:
        self.saves += 1
        return {}


@pytest.mark.parametrize("method", ["full", "frozen"])
def test_passes_that_are_shorter_than_a_checkpoint_share_one(method, data, model, tmp_path, monkeypatch):
    """Six passes of a tiny model are saved at their end alone; of a pass of so much work, each; heads of a frozen body
    are less work. The weights do not depend on it."""
    folders = []
    for operations, saves in ((2.5e11, 1), (1.0, 6), (1e7, 6 if method == "full" else 1)):
        monkeypatch.setattr("infoflow.subjects.adaptation.measures._tune._OPERATIONS_APART", operations)
        counted = CountSaves()
        settings, folder = config(method=method, epochs=6, head_epochs=6), tmp_path / f"{operations:.0e}"
        (one,) = tune(model, data, settings, folder, hooks=lambda seed, rate, hook=counted: [hook]).models
        folders.append(one.folder)
        assert counted.saves == saves
    first, *others = [load_file(folder / "model.safetensors") for folder in folders]
    assert all(torch.equal(value, other[name]) for other in others for name, value in first.items())


@pytest.mark.parametrize(
    ("family", "method"),
    [
        ("causal-bert", "full"), ("encoder-decoder", "decay"), ("gpt2", "lora"), ("t5", "frozen"), ("t5", "lora"),
        ("bart", "full"), ("bart", "decay"), ("albert", "frozen"), ("albert", "lora"), ("bart", "mix"), ("gpt2", "mix"),
        ("shallow-decoder", "mix"),
    ],
)  # fmt: skip
def test_families_are_tuned_by_every_method(family, method, tmp_path):
    data, model = small_data(32), small_model(family)
    (one,) = tune(model, data, config(method=method, epochs=1, head_epochs=1), tmp_path).models
    assert one.load().module.config.id2label == {0: "first", 1: "last"}


@pytest.mark.parametrize("family", ["encoder-decoder", "t5", "gpt2"])
@pytest.mark.parametrize("method", ["full", "lora", "top"])
def test_writers_are_tuned(family, method, tmp_path):
    """A text to write: of a model with two tokenizers each side by its own."""
    texts = list(small_data(24).train.column("text"))
    corpus = Corpus.from_sentences([(text, text.split()[0]) for text in texts])
    data = TaskData(name="first-word", shape="generation", train=corpus, dev=corpus, test=corpus)
    model = small_model(family)
    if family == "encoder-decoder":
        model = dataclasses.replace(model, target_tokenizer=small_tokenizer())
    task = Generation(task="first-word", max_target=4)
    (one,) = tune(model, data, config(method=method, epochs=1), tmp_path, task=task).models
    assert (one.folder / "target_tokenizer").exists() == (family == "encoder-decoder")
    assert one.score(corpus, corpus)[0].metric == one.facts["metric"]
    with pytest.raises(UserError, match="has no new head"):
        tune(model, data, config(method="frozen"), tmp_path, task=task)


def test_a_tokenizer_without_padding_gets_one(data, tmp_path):
    tokenizer = small_tokenizer()
    tokenizer.pad_token = None
    tokenizer.eos_token = "[SEP]"
    model = load_model(small_model("gpt2").module, tokenizer)
    (one,) = tune(model, data, config(epochs=1), tmp_path).models
    loaded = one.load()
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.pad_token_id == loaded.module.config.pad_token_id == 2
    assert tokenizer.pad_token is None  # the given one stays


def test_no_path_of_this_machine_is_written(data, model, tmp_path):
    (one,) = tune(model, data, config(), tmp_path).models
    for path in one.folder.glob("*.json"):
        assert str(tmp_path) not in path.read_text()
    assert "_name_or_path" not in json.loads((one.folder / "config.json").read_text())


def test_mistakes_are_told(data, model, tmp_path):
    with pytest.raises(UserError, match="at most the 48 training examples"):
        tune(model, data, config(examples=1000), tmp_path)
    with pytest.raises(UserError, match=r"tune\.layers must be at most the 2 blocks"):
        tune(model, data, config(method="top", layers=3), tmp_path)


def test_warm_start_hooks_see_every_training(data, model, tmp_path):
    seen = []

    class Counts(TrainingHook):
        def on_train_end(self, module) -> None:
            seen.append(type(module).__name__)

    asked = []

    def hooks(seed: int, rate: float) -> list[TrainingHook]:
        asked.append((seed, rate))
        return [Counts()]

    tune(model, data, config(seeds=(0, 1)), tmp_path, hooks=hooks)
    assert asked == [(0, 1e-2), (1, 1e-2)]
    assert seen == ["BertForSequenceClassification"] * 2
