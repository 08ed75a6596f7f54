"""Tuning that ends where dev gains nothing more, against every pass looked at afterwards."""

import hashlib

import pytest
import torch
from adaptation.small_task import small_data, small_model
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from infoflow.adaptation import TuneConfig, tune
from infoflow.foundation import UserError
from infoflow.subjects.adaptation.settings import TunePlan
from infoflow.training import TrainingHook

PASSES = 8
UPDATES = 3  # of a pass: 48 examples, 16 at a time


class EachPass(TrainingHook):
    """Keeps the weights after every pass."""

    name = "each-pass"

    def __init__(self) -> None:
        self.weights = []

    def on_step_end(self, step) -> None:
        if step.update % UPDATES == 0:
            self.weights.append({name: one.detach().clone() for name, one in step.module.state_dict().items()})


def config(**settings) -> TuneConfig:
    chosen = {"epochs": PASSES, "batch_examples": 16, "learning_rates": (2e-2,), "seeds": (0,), "device": "cpu"}
    return TuneConfig(**chosen | {"precision": "fp32"} | settings)


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """Of a training to the end the weights after each pass, and the share of dev that each gets right, text by text."""
    data, model, seen = small_data(), small_model(), EachPass()
    (one,) = tune(model, data, config(), tmp_path_factory.mktemp("whole"), hooks=lambda seed, rate: [seen]).models
    module = AutoModelForSequenceClassification.from_pretrained(one.folder).eval()
    texts, labels = list(data.dev.column("text")), list(data.dev.column("label"))
    scores = []
    for weights in seen.weights:
        module.load_state_dict(weights)
        said = [_said(module, model.require_tokenizer(), text) for text in texts]
        scores.append(sum(one == label for one, label in zip(said, labels, strict=True)) / len(labels))
    return seen.weights, scores


def _said(module, tokenizer, text: str) -> str:
    inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        return module.config.id2label[int(module(**inputs).logits.argmax())]


def stopped(scores: list[float], patience: int) -> tuple[int, int]:
    """After which pass training ends, and which pass is the best until then, from 0: by looking at all of them."""
    for end in range(len(scores)):
        best = scores[: end + 1].index(max(scores[: end + 1]))
        if end - best >= patience:
            return end, best
    return len(scores) - 1, scores.index(max(scores))


@pytest.mark.parametrize("patience", [1, 2, 100])
def test_ends_with_the_weights_of_the_best_pass(patience, passes, tmp_path):
    weights, scores = passes
    end, best = stopped(scores, patience)
    tuned = tune(small_model(), small_data(), config(patience=patience), tmp_path)
    found = load_file(tuned.models[0].folder / "model.safetensors")
    assert tuned.models[0].updates == (end + 1) * UPDATES
    assert found
    assert all(torch.equal(value, weights[best][name]) for name, value in found.items())
    assert tuned.models[0].facts["dev"] == pytest.approx(scores[best])


def test_some_patience_ends_before_the_last_pass(passes):
    _, scores = passes
    assert stopped(scores, 1)[0] < PASSES - 1, scores


@pytest.mark.parametrize("method", ["frozen", "lora"])
def test_parts_that_learn_alone_are_put_back(method, tmp_path):
    """Ends, whatever learns, with what the answers were made of."""
    settings = {"patience": 1, "head_epochs": PASSES, "method": method}
    first, again = (tune(small_model(), small_data(), config(**settings), tmp_path / name) for name in "ab")
    hashes = [
        hashlib.sha256((one.models[0].folder / "model.safetensors").read_bytes()).hexdigest() for one in (first, again)
    ]
    assert hashes[0] == hashes[1]
    assert first.models[0].updates % UPDATES == 0


def test_no_patience_is_what_it_was_and_some_is_another_tuning():
    assert "patience" not in TuneConfig().key()
    assert TuneConfig(patience=2).key()["patience"] == 2


def test_who_learned_the_task_is_followed_to_the_end():
    with pytest.raises(UserError, match=r"tune\.patience must be 0"):
        TunePlan(name="grammar-tags", patience=2)
    assert TunePlan(name="grammar-tags", patience=2, inside=False).patience == 2
