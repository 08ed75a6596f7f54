"""Names of checkpoints, as public suites write them."""

import json
import math

import pytest

from infoflow.foundation import UserError
from infoflow.over_training import PUBLIC_SUITES, checkpoint_name, parse_steps, public_suite, trainer_state


@pytest.mark.parametrize(
    ("text", "step", "tokens", "stage", "ingredient"),
    [
        ("step1000", 1000, math.nan, 0, 0),
        ("step_20k", 20_000, math.nan, 0, 0),
        ("google/multiberts-seed_0-step_2000k", 2_000_000, math.nan, 0, 0),
        ("step-001000-2BT", 1000, 2e9, 0, 0),
        ("step-50K-105b", 50_000, 105e9, 0, 0),
        ("checkpoint-500", 500, math.nan, 0, 0),
        ("step-00000500", 500, math.nan, 0, 0),
        ("stage1-step101000-tokens424B", 101_000, 424e9, 1, 0),
        ("stage2-ingredient3-step1000-tokens5B", 1000, 5e9, 2, 3),
        ("step1000-tokens4M", 1000, 4e6, 0, 0),
        ("global_step12", 12, math.nan, 0, 0),
        ("step2m", 2_000_000, math.nan, 0, 0),
        ("step0", 0, math.nan, 0, 0),
    ],
)
def test_steps_tokens_and_stages_are_read(text: str, step: int, tokens: float, stage: int, ingredient: int) -> None:
    found = checkpoint_name(text)
    assert found is not None
    assert (found.step, found.stage, found.ingredient) == (step, stage, ingredient)
    assert found.tokens == tokens or (math.isnan(found.tokens) and math.isnan(tokens))


@pytest.mark.parametrize(
    "text", ["main", "final", "v1.0", "stepwise", "1000", "footstep", "step", "checkpoints", f"step{10**30}"]
)
def test_other_names_tell_no_step(text: str) -> None:
    assert checkpoint_name(text) is None


def test_steps_by_hand() -> None:
    assert parse_steps(["final=1000", "a=b=2"]) == {"final": 1000, "a=b": 2}
    for wrong in (["final"], ["=3"], ["final=-1"], ["final=x"]):
        with pytest.raises(UserError, match="--steps takes NAME=STEP"):
            parse_steps(wrong)
    with pytest.raises(UserError, match="once"):
        parse_steps(["a=1", "a=2"])


def test_public_suites_have_the_steps_that_are_published() -> None:
    sizes = {suite.name: len(suite.steps) for suite in PUBLIC_SUITES}
    assert sizes == {"Pythia": 154, "MultiBERTs": 29, "Stanford GPT-2": 609, "OLMo": 0}
    for suite in PUBLIC_SUITES:
        assert list(suite.steps) == sorted(set(suite.steps))
    pythia = public_suite("EleutherAI/pythia-2.8b")
    assert pythia is not None
    assert len(pythia.doubtful["EleutherAI/pythia-2.8b"]) == 85  # 86 of 154, the last of which may be what it says
    assert {int(name[4:]) for name in pythia.doubtful["EleutherAI/pythia-2.8b"]} <= set(pythia.steps)


def test_a_suite_is_found_by_its_repository() -> None:
    named = {
        name: (found.name if (found := public_suite(name)) else None)
        for name in (
            "EleutherAI/pythia-160m-seed3",
            "EleutherAI/pythia-160m-v0",
            "google/multiberts-seed_0-step_20k",
            "stanford-crfm/alias-gpt2-small-x21",
            "allenai/OLMo-2-1124-7B",
            "gpt2",
        )
    }
    assert list(named.values()) == ["Pythia", None, "MultiBERTs", "Stanford GPT-2", "OLMo", None]


@pytest.mark.parametrize("step", [10**30, 10**400, -1, "1", None, [1], True])
def test_a_step_that_no_training_reaches_is_none(tmp_path, step) -> None:
    """A table holds whole numbers of 64 bits: it would fail behind all the work."""
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": step, "num_input_tokens_seen": step}))
    assert trainer_state(tmp_path).step is None
