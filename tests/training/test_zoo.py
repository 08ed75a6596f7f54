"""The objectives with noise, heads or models of their own, in a run: interrupted, saved, loaded, gone on with."""

import dataclasses
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from objectives.zoo import MASK, vocabulary
from safetensors.torch import load_file
from support.forked import run_script
from training.any_objective import SHAPE, OrdinaryRows, data_for, model_for
from training.tiny import tiny_config
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForPreTraining, ElectraForMaskedLM

from infoflow.architectures import FAMILIES, build
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.objectives import (
    Bart,
    BiLM,
    CausalLM,
    Electra,
    MaskedLM,
    Mass,
    NextSentence,
    SkipGram,
    SpanBert,
    SpanCorruption,
)
from infoflow.training import TrainingData, TrainingHook, TrainingInterrupted, evaluate, train

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "any_objective.py"


class StopAfter(TrainingHook):
    def __init__(self, update: int) -> None:
        self._update = update

    def on_step_end(self, step) -> None:
        if step.update == self._update:
            signal.raise_signal(signal.SIGINT)


NOISY = [Electra(), SpanBert(), NextSentence(selection="static"), Bart(rotate=0.5, insert=0.1), BiLM(), SkipGram()]


@pytest.mark.parametrize("objective", NOISY, ids=lambda one: one.name)
def test_an_interrupted_run_ends_with_the_weights_of_one_that_was_not(objective, tmp_path) -> None:
    data = data_for(objective)
    with pytest.raises(TrainingInterrupted):
        train(objective, tiny_config(), data, model_for(objective), tmp_path / "cut", hooks=[StopAfter(8)])
    torch.manual_seed(5)
    train(objective, tiny_config(), data, resumed := model_for(objective), tmp_path / "cut")
    train(objective, tiny_config(), data, whole := model_for(objective), tmp_path / "whole")
    begun = dict(model_for(objective).named_parameters())
    for name, parameter in whole.named_parameters():
        assert torch.equal(dict(resumed.named_parameters())[name], parameter), name
        assert not torch.equal(begun[name], parameter), name  # every part was trained


@pytest.mark.slow
@pytest.mark.parametrize(  # one of each kind: a loss that draws, pairs of segments, noise behind noise
    ("name", "dropout"), [("electra", ()), ("mass", ("--token-dropout", "0.2"))]
)
def test_a_killed_run_ends_with_the_weights_of_one_that_was_not(name: str, dropout: tuple[str, ...], tmp_path) -> None:
    arguments = "--objective", name, *dropout
    for update in ("5", "9"):  # between checkpoints, which are written every 3 updates
        assert run_script(SCRIPT, tmp_path / "killed", *arguments, "--die", update) == -signal.SIGKILL
    assert run_script(SCRIPT, tmp_path / "killed", *arguments) == 0
    assert run_script(SCRIPT, tmp_path / "whole", *arguments) == 0
    ends = [sorted((tmp_path / run).glob("model/*.safetensors")) for run in ("killed", "whole")]
    assert [path.name for path in ends[0]] == [path.name for path in ends[1]] != []
    for killed, whole in zip(*ends, strict=True):
        assert killed.read_bytes() == whole.read_bytes(), whole.name


@pytest.mark.parametrize("objective", NOISY, ids=lambda one: one.name)
def test_scores_on_held_out_text_are_frozen_and_know_no_batches(objective) -> None:
    data, module = data_for(objective, 20, 9), model_for(objective)
    torch.manual_seed(1)
    first = evaluate(objective, module, data, micro_tokens=40)
    torch.manual_seed(2)
    again = evaluate(objective, module, data, micro_tokens=10_000)
    assert first.counts == again.counts
    assert first.losses == pytest.approx(again.losses, rel=1e-5)


@pytest.mark.parametrize("objective", [Electra(), SpanBert(), NextSentence(), BiLM()], ids=lambda one: one.name)
def test_a_checkpoint_holds_the_exported_model_and_the_rest(objective, tmp_path) -> None:
    data, module = data_for(objective), model_for(objective)
    folder = train(objective, tiny_config(), data, module, tmp_path).model
    part = objective.exported(module)
    auto = {"electra": AutoModelForPreTraining, "bilm": AutoModelForCausalLM}.get(objective.name, AutoModelForMaskedLM)
    loaded = auto.from_pretrained(folder)
    assert type(loaded) is type(part)
    kept = part.state_dict()
    assert loaded.state_dict().keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in loaded.state_dict().items())
    assert load_model(folder).digest == load_model(part).digest
    rest = load_file(folder / "rest.safetensors")
    parts = {
        "electra": {"generator"},
        "spanbert": {"places", "boundary", "boundary_bias"},
        "masked-lm-nsp": {"pooler", "pair_head"},
        "bilm": {"backwards"},
    }
    assert {name.split(".")[0] for name in rest} == parts[objective.name]
    assert not any(name.endswith("word_embeddings.weight") for name in rest)  # shared with the exported model


def test_embeddings_stay_shared_through_a_checkpoint(tmp_path) -> None:
    objective, data = Electra(), data_for(Electra())
    with pytest.raises(TrainingInterrupted):
        train(objective, tiny_config(), data, model_for(objective), tmp_path, hooks=[StopAfter(8)])
    train(objective, tiny_config(), data, module := model_for(objective), tmp_path)
    words = module.discriminator.electra.embeddings.word_embeddings.weight
    assert isinstance(module.generator, ElectraForMaskedLM)
    assert module.generator.electra.embeddings.word_embeddings.weight is words
    assert module.generator.generator_lm_head.weight is words
    train(objective, tiny_config(), data, again := model_for(objective), tmp_path)  # from the finished run's files
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert again.generator.generator_lm_head.weight is again.discriminator.electra.embeddings.word_embeddings.weight


def test_mixed_precision_reaches_every_part(tmp_path) -> None:
    for objective in (Electra(), SpanBert(), NextSentence(), Mass(), Bart(), BiLM(), SkipGram()):
        config = tiny_config(updates=2, precision="bf16")
        result = train(objective, config, data_for(objective), model_for(objective), tmp_path / objective.name)
        assert result.updates == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_mixed_precision_reaches_every_architecture(family, tmp_path) -> None:
    """T5 hands its position biases to the attention, in the precision of its projections."""
    for objective in (MaskedLM(), Mass(), CausalLM()):
        if objective.layout not in FAMILIES[family].layouts:
            continue
        data, shape = data_for(objective), dataclasses.replace(SHAPE, dropout=0.0)
        model = build(family, objective.layout, shape, data.vocabulary, data.target_vocabulary)
        exact = evaluate(objective, model, data).loss
        assert evaluate(objective, model, data, precision="bf16").loss == pytest.approx(exact, rel=1e-2)
        config = tiny_config(updates=2, precision="bf16")
        assert train(objective, config, data, model, tmp_path / objective.name).updates == 2


def test_the_noise_of_an_example_is_not_that_of_another_epoch_or_sentence() -> None:
    objective, data, rows = Bart(), data_for(Bart()), np.arange(40)
    batches = [data.batch(objective, rows, ("training-noise", 0), epoch) for epoch in (0, 1, 0)]
    first, other, again = ((batch.input_ids == MASK).sum(1).tolist() for batch in batches)
    assert first == again != other


def test_a_tokenizer_without_sentinels_is_refused_before_anything_is_trained(tmp_path) -> None:
    objective = SpanCorruption()
    data = TrainingData(source=OrdinaryRows(20, 0), vocabulary=vocabulary(sentinels=()))
    with pytest.raises(UserError, match="sentinel"):
        train(objective, tiny_config(), data, model_for(objective), tmp_path)
