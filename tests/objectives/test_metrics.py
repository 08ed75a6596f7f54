"""When a model counts as having learned its task."""

import numpy as np
import pytest
import torch

from infoflow.objectives import OBJECTIVES, Batch, CausalLM, Metric, Translation


def test_every_objective_declares_its_scores() -> None:
    declared = {name: [metric.name for metric in one.metrics] for name, one in OBJECTIVES.items()}
    assert {name: scores for name, scores in declared.items() if scores != ["loss"]} == {
        "translation": ["loss", "bleu"],
        "masked-lm-nsp": ["loss", "next-sentence accuracy"],
        "masked-lm-sop": ["loss", "sentence-order accuracy"],
        "electra": ["replaced-token AUC"],
        "distillation": ["loss of masked-lm"],
        "skip-gram": ["pair AUC"],
        "multitask": ["loss", "bleu"],
    }
    baselines = {metric.name: metric.baseline for metric in Translation.metrics}
    assert baselines == {"loss": "unigram", "bleu": "source copied"}


def test_a_loss_counts_from_a_tenth_below_the_baseline_on_by_its_upper_end() -> None:
    (loss,) = CausalLM.metrics
    assert loss.limit(5.0) == pytest.approx(4.5)
    assert loss.learned(low=4.0, high=4.49, baseline=5.0)
    assert not loss.learned(low=3.0, high=4.51, baseline=5.0)


def test_bleu_counts_from_ten_points_above_the_baseline_on_by_its_lower_end() -> None:
    bleu = Translation.metrics[1]
    assert bleu.limit(1.5) == 11.5
    assert bleu.learned(low=11.6, high=30.0, baseline=1.5)
    assert not bleu.learned(low=11.4, high=30.0, baseline=1.5)


@pytest.mark.parametrize("rule", [{}, {"gain": 1.0}, {"share": 0.9, "gain": 1.0}])
def test_a_falling_score_needs_a_share_and_nothing_else(rule) -> None:
    with pytest.raises(AssertionError):
        Metric(name="loss", baseline="unigram", better="lower", **rule)


def test_the_guess_knows_frequencies_and_the_labels_alone() -> None:
    labels = torch.tensor([[3, -100, 1], [1, 0, -100]])
    batch = Batch(tensors={"labels": labels}, source_tokens=6, target_tokens=0, supervised_tokens=4)
    assert CausalLM().guesses(batch, np.array([1.0, 2.0, 4.0, 8.0])) == {"causal-lm": 8.0 + 2.0 + 2.0 + 1.0}
