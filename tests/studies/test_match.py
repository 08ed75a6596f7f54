"""What the table `match` says of a finished study."""

import numpy as np
import pytest
import torch

from infoflow.results import MATCH
from infoflow.studies import MatchModel, Run, matched_weights
from infoflow.training import build_models


def test_each_model_has_a_row_with_what_its_training_read(small_run: Run) -> None:
    match, trained = small_run.tables["match"], small_run.tables["training_runs"]
    assert list(match) == MATCH.column_names
    assert set(match["model"]) == set(trained["model"])
    both = match.merge(trained, on="model", suffixes=("", "_trained"))
    for name in ("parameters", "updates", "source_tokens", "target_tokens", "supervised_tokens"):
        assert (both[name] == both[f"{name}_trained"]).all()
    assert (match["flops"] > 0).all()
    assert (match["measured_parameters"] <= match["parameters"]).all()


def test_operations_lie_near_six_per_parameter_and_token(small_run: Run) -> None:
    """Embeddings are looked up and logits taken at some positions: the rule is one of thumb."""
    match = small_run.tables["match"].set_index("objective")
    for name in ("causal-lm", "masked-lm"):
        row = match.loc[name]
        assert 0.4 < row["flops"] / (6 * row["parameters"] * row["source_tokens"]) < 1.6
    assert match.loc["translation", "flops"] > match.loc["causal-lm", "flops"] > match.loc["masked-lm", "flops"]


def test_first_weights_agree_by_name_where_the_table_says_so(small_run: Run) -> None:
    match = small_run.tables["match"].set_index("objective")
    assert (match.loc[["masked-lm", "causal-lm"], "matched_weights"] == match.loc["masked-lm", "drawn_weights"]).all()
    (stage, *_) = [one for one in small_run.stages.of(MatchModel) if one.recipe.objective.name == "translation"]
    models = stage.models
    translation = models.initial(stage.recipe)
    objective = models.plan.objective("masked-lm")
    masked = build_models([objective], models.plan.model, models.data.vocabulary, seed=stage.recipe.seed)["masked-lm"]
    known = {name.removeprefix("bert."): value for name, value in masked.named_parameters()}
    drawn = matched = 0
    for name, value in translation.named_parameters():
        if len(torch.unique(value)) < 2:
            continue
        drawn += value.numel()
        other = known.get(name.removeprefix("encoder."))
        matched += value.numel() if other is not None and torch.equal(value, other) else 0
    assert (match.loc["translation", "drawn_weights"], match.loc["translation", "matched_weights"]) == (drawn, matched)
    assert 0 < matched < drawn
    assert match.loc["translation", "initialisation"].startswith("matched on the side that reads the text")


def test_other_weights_match_in_nothing() -> None:
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
    assert matched_weights(first, first) == (15, 15)
    assert matched_weights(first, second) == (15, 0)
    torch.nn.init.zeros_(first.bias)
    torch.nn.init.zeros_(second.bias)
    assert matched_weights(first, second) == (12, 0)  # zeros are no sign of a common origin


def test_a_row_is_made_without_training_again(small_run: Run, tmp_path) -> None:
    (stage, *_) = small_run.stages.of(MatchModel)
    before = stage.tables()["match"]
    counted = stage.make()
    for name in ("flops", "measured_parameters", "drawn_weights"):
        assert counted[name] == pytest.approx(before[name].iloc[0])
    assert np.isfinite(counted["flops_error"]) or before["updates"].iloc[0] < 2
