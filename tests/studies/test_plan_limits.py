"""Every setting of every plan table against values that make no sense: accepted where they do, else one message."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

from infoflow.foundation import Limits, UserError, as_written, describe_setting, read_setting
from infoflow.pruning import KINDS
from infoflow.studies import StudyPlan, pair_measures, standard_measures
from infoflow.subjects.pruning.settings import PruningPlan
from infoflow.subjects.transplant.settings import TransplantPlan

_VALUES: dict[str, Any] = {
    "0": 0,
    "-1": -1,
    "NaN": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1.5": 1.5,
    "true": True,
    "empty text": "",
    "text": "nonsense",
    "line": "two\nlines",
    "empty list": [],
    "list": [-1],
    "empty table": {},
    "nothing": None,
    "1e30": 1e30,
    "10**20": 10**20,
    "10**5000": 10**5000,
}
_ZERO = {  # what 0 switches off, leaves unlimited, or starts from
    *("corpus.sentences", "corpus.validation", "corpus.test", "model.dropout", "model.attention_dropout"),
    *("training.seed", "training.warmup", "training.end_learning_rate", "training.weight_decay", "training.clip"),
    *("training.label_smoothing", "training.evaluate_every", "training.save_every", "analysis.sentences"),
    *("analysis.clusters", "analysis.training_sentences", "alignment.pairs", "alignment.save_every"),
    "dynamics.tolerance",
    *("dynamics.held_out_tokens", "pruning.random_draws", "pruning.score_sentences", "pruning.rank_sentences"),
    *("pruning.recover_updates", "pruning.recover_learning_rate"),
    *("pruning.role_sentences", "pruning.save_every", "model.initializer_range", "model.decoder_layers"),
    *("model.sinusoidal_positions", "model.attention_window", "model.embedding_width"),
    *("context.sentences", "context.bleu_sentences", "context.save_every"),
    *(
        f"transplant.{name}"
        for name in ("updates", "rank_sentences", "role_sentences", "score_sentences", "save_every")
    ),
    "probing.corpus_sentences",
    *(f"domain.{name}" for name in ("sentences", "updates", "warmup", "scratch_updates", "vocabulary")),
    *("domain.extend_vocabulary", "domain.loss_sentences", "tune.patience", "tune.max_target"),
    *(f"retrieval.{name}" for name in ("language", "world_seed", "null_share", "freeze_retriever", "retriever_width")),
    *("retrieval.warm_updates", "retrieval.read_updates", "retrieval.save_every"),
    *("retrieval.allocation_tokens", "retrieval.checkpoints"),
}
_NEVER = {"retrieval.refresh_every", "retrieval.stale_refresh"}  # what −1 switches off
_BROKEN = {  # numbers of which 1.5 is one
    *("model.initializer_range", "training.learning_rate", "training.warmup", "training.power"),
    "model.sinusoidal_positions",
    *("training.weight_decay", "training.clip", "alignment.learning_rate", "pruning.learning_rate"),
    *("pruning.gate_rate", "pruning.recover_learning_rate", "checkpoints.budget", "context.learning_rate"),
    *("domain.learning_rate", "retrieval.learning_rate", "retrieval.retriever_rate"),
}
_TEXT = {"title", "corpus.name", "corpus.validation_name", "corpus.test_name", "corpus.transfer_name"} | {
    "probing.corpus",
    "corpus.text_column",
    "corpus.translation_column",
    "corpus.document_column",
    *(f"domain.{name}" for name in ("corpus", "text_column", "translation_column", "document_column")),
    *(f"tune.{name}" for name in ("name", "train")),
    "retrieval.corpus",
}
_EMPTY_LIST = {"pairs", "analysis.tables", "pruning.greedy", "pruning.keep", "pruning.subset"} | {
    "pruning.scratch_scopes",
    "probing.tasks",
    *(
        "pruning.scratch_points",
        "pruning.recover_points",
        "checkpoints.light",
        "checkpoints.heavy",
        "checkpoints.references",
    ),
    *("tune", "domain.objectives", "retrieval.variants", "retrieval.seeds"),
    *(
        f"tune.{name}"
        for name in ("columns", "learning_rates", "frozen_rates", "objectives", "inside_objectives", "controls")
    ),
}
_NOTHING = {"training.max_source_tokens", "training.batch_sentences"}
_SENSIBLE = {
    "0": _ZERO,
    "-1": _NEVER,
    "1.5": _BROKEN,
    "text": _TEXT,
    "empty text": {*_TEXT, "checkpoints.schedule", "tune.dev", "tune.test", "tune.shape", "retrieval.test"}
    - {"corpus.name", "tune.name"}
    | {"plugins.measures", "plugins.objectives", "plugins.claims"},
    "empty list": _EMPTY_LIST,
    "empty table": {"variants"},
    "nothing": _NOTHING,
}


def _settings(kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            yield from _settings(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
            continue
        if dataclasses.is_dataclass(table := next(iter(get_args(hint)), None)):  # written [[NAME]]
            yield from _settings(table, f"{prefix}{name}.")  # type: ignore[arg-type]
        yield f"{prefix}{name}", hint


_HINTS = dict(_settings(StudyPlan))


def _plan(setting: str, value: Any) -> dict[str, Any]:
    *tables, last = setting.split(".")
    if tables == ["tune"]:
        others = {"train": "x.tsv"} if last == "name" else {"name": "grammar-tags"}  # of files it is called anything
        return {"tune": [{**others, last: value}]}
    return {tables[0]: {last: value}} if tables else {last: value}


@pytest.mark.parametrize("setting", _HINTS)
def test_nonsense_is_refused_by_one_message(setting: str) -> None:
    accepted = set()
    for name, value in _VALUES.items():
        try:
            StudyPlan.from_json(_plan(setting, value))
        except UserError as error:
            message = str(error).replace("tune[0].", "tune.")
            if setting.startswith("plugins.") and "its author's own code" in message:
                continue  # a file's name, which a run folder may not have executed
            assert message.startswith(setting), message
            assert re.search(r" (must|needs) .+\. Got .+", message), message
            assert not re.search(r"\bNone\b|\bTrue\b|\bint\b|\bfloat\b|\bstr\b|'|<class|\n", message), message
            assert len(message) < 500, message
        else:
            accepted.add(name)
    expected = {name for name, settings in _SENSIBLE.items() if setting in settings}
    if bool in (_HINTS[setting],):
        expected = {"true"}
    assert accepted == expected


@pytest.mark.parametrize(
    "setting",
    [
        name
        for name, hint in _HINTS.items()
        if name.startswith("analysis.") and "whole number" in describe_setting(hint)
    ],
)
def test_a_plan_at_its_limits_makes_measures(setting: str) -> None:
    """What a plan accepts, the measures that it configures accept."""
    for value in (1, 2, 3, 1000, 65_535, 10**9):
        try:
            plan = StudyPlan.from_json(_plan(setting, value))
        except UserError:
            continue
        assert standard_measures(plan.analysis)
        assert pair_measures(plan.analysis)


def test_tables_must_be_tables() -> None:
    for name in ("corpus", "model", "training", "analysis", "alignment", "dynamics", "pruning", "engine"):
        for value in (3, "x", [], None):
            with pytest.raises(UserError, match=rf"{name} must be a table of settings, written \[{name}\]\. Got "):
                StudyPlan.from_json({name: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"corpus": {"min_words": 9, "max_words": 3}}, "corpus.min_words must be at most corpus.max_words"),
        ({"corpus": {"validation": 0.5, "test": 0.5}}, "must leave a share for training"),
        ({"model": {"width": 100, "heads": 8}}, "multiple of model.heads.*100 and 8 heads. Try 96"),
        ({"training": {"end_learning_rate": 0.1}}, "end_learning_rate must be at most training.learning_rate"),
        ({"training": {"learning_rate": 1, "weight_decay": 1}}, "times training.weight_decay must be below 1"),
        ({"training": {"betas": [0.9]}}, r"betas must be a list of exactly 2 of numbers .*. Got \[0.9\]"),
        ({"training": {"betas": [0.9, 1.0]}}, r"betas\[1\] must be a number at least 0, below 1. Got 1.0"),
        ({"pruning": {"penalties": [0.1, math.nan]}}, r"penalties\[1\] must be a number .* Got nan"),
        ({"pruning": {"keep": [3.5]}}, "numbers of heads, or shares below 1. Got 3.5"),
        ({"seeds": [0, -1]}, r"seeds\[1\] must be a whole number from 0 to 4,294,967,295. Got -1"),
        ({"seeds": [12345678901234567890]}, r"seeds\[0\] must be a whole number"),
        ({"seeds": [0] * 20_000}, "seeds must be a list"),
    ],
)
def test_settings_that_do_not_go_together(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        StudyPlan.from_json(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"seeds = {'[' * 2000}{']' * 2000}", "nests lists too deeply for a plan"),
        (f"seeds = [{'9' * 5000}]", r"holds a number of more than 4,300 digits\. Shorten it\.$"),
        ("seeds = 2026-01-01", r"seeds must be a list.*Got \"2026-01-01\""),
    ],
)
def test_hostile_toml_is_refused(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        StudyPlan.load(path)


def test_the_scopes_are_the_kinds_and_all() -> None:
    (scopes, *_) = get_args(get_type_hints(PruningPlan)["scopes"])
    assert get_args(scopes) == (*KINDS, "all")
    assert get_args(get_type_hints(TransplantPlan)["scope"]) == (*KINDS, "all")


def test_limits_are_worded_as_they_are_checked() -> None:
    for value in (-1.0, 0.0, 0.5, 1.0, 2.0):
        limits = Limits(above=0, at_most=1)
        assert limits.hold(value) == (0 < value <= 1)
    assert describe_setting(_HINTS["training.betas"]) == "a list of exactly 2 of numbers at least 0, below 1"
    assert describe_setting(_HINTS["training.max_source_tokens"]).startswith("a whole number from 1")
    assert describe_setting(_HINTS["alignment.on"]) == "true or false"
    assert read_setting(float, 3, "x") == 3.0
    assert as_written("x" * 1000).endswith("(1,002 characters)")
    assert as_written([1.5, "a", True, None]) == '[1.5, "a", true, null]'
