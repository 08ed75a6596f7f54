"""The user's own objectives: classes in a Python file, registered by name with those of the package."""

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any, get_args

from infoflow.architectures import FAMILIES, Layout, ModelConfig, build
from infoflow.foundation import UserError, as_written, described_in_file, file_digest, own_module, words_and_signs

from ._objective import AbstractObjective, Family
from ._registry import OBJECTIVES, batch_of_text, further_objectives, make_objective

_SENTENCE = "Well, the old cat that the dogs see every single day sleeps under the kitchen table again."
_SMALL = ModelConfig(width=8, layers=1, heads=1, feedforward=8)
_LAYOUTS = tuple(name for part in get_args(Layout) for name in (get_args(part) or (part,)))


def load_objectives(path: Path | str) -> dict[str, type[AbstractObjective]]:
    """The objectives of a Python file, or of an entry point in `infoflow.objectives`; they are added to `OBJECTIVES`.

    **The code is executed**: name only what you trust. Each objective then computes its loss on one sentence, so that
    mistakes are reported before any work. Models are keyed by the text of the file: a changed file is trained again,
    but changes in its imports are not noticed.

    Raises:
        UserError: The file cannot be run, or holds no objective or an unusable one.
    """
    module, file = own_module(path, "objectives")
    found = [value for value in vars(module).values() if _is_objective(value) and value.__module__ == module.__name__]
    found = [one for one in dict.fromkeys(found) if not one.__name__.startswith("Abstract")]
    if not found:
        raise UserError(
            f"{path} holds no objective: no class derived from infoflow.objectives.AbstractObjective. Write one."
        )
    code, before = file_digest(file), dict(OBJECTIVES)
    for name in [name for name, one in OBJECTIVES.items() if one.__module__ == module.__name__]:
        del OBJECTIVES[name]  # of an earlier version of the file
    try:
        for one in found:
            if fault := _fault(one):
                raise UserError(f"The objective {one.__name__} in {path} cannot be used: {fault}. Correct it.")
            one.own_code = code
            OBJECTIVES[one.name] = one
            _try(one, file)
    except UserError:
        OBJECTIVES.clear()
        OBJECTIVES.update(before)
        raise
    return {one.name: one for one in found}


def _is_objective(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, AbstractObjective)


def _fault(cls: type[AbstractObjective]) -> str:
    """Why the objective is unusable, or ""; nothing else checks types in user code."""
    if inspect.isabstract(cls):
        return f"it lacks methods: {', '.join(sorted(cls.__abstractmethods__))}"
    if "__dataclass_fields__" not in vars(cls):
        return "it must be a dataclass: write @dataclass(frozen=True, kw_only=True) above it"
    if missing := [name for name in ("name", "layout", "family", "term_weights") if not hasattr(cls, name)]:
        return f"it must state its {missing[0]}"
    if not isinstance(cls.name, str) or not re.fullmatch(r"[a-z][a-z0-9-]{0,40}", cls.name):
        return f"its name must consist of small letters, digits and hyphens, got {as_written(cls.name)}"
    if cls.name in OBJECTIVES or cls.name in further_objectives():
        return f"the name {cls.name} is taken"
    for name, known in (("layout", _LAYOUTS), ("family", get_args(Family))):
        if (value := getattr(cls, name)) not in known:
            return f"its {name} must be one of {', '.join(known)}, got {as_written(value)}"
    if not isinstance(cls.term_weights, dict) or not cls.term_weights:
        return 'its term_weights must give a weight to each term of its loss, such as {"loss": 1.0}'
    if needed := [one.name for one in dataclasses.fields(cls) if one.default is one.default_factory]:  # type: ignore[arg-type] (both MISSING)
        return f"its option {needed[0]} needs a default"
    return ""


def _try(cls: type[AbstractObjective], file: Path) -> None:
    """Train on one sentence, without an update."""
    try:
        objective = make_objective(cls.name)
        made = batch_of_text(objective, [words_and_signs(_SENTENCE)], words_and_signs(_SENTENCE))
        family = next(name for name, one in FAMILIES.items() if cls.layout in one.layouts)
        module = build(family, cls.layout, _SMALL, made.source, made.target if cls.needs_translation else None).eval()
        terms = objective.loss(module, made.batch, made.batch.noise)
        if (given := set(terms)) != (weighted := set(cls.term_weights)):
            raise UserError(
                f"The terms of the loss of {cls.name} in {file} must be those of term_weights, "
                f"{', '.join(sorted(weighted))}. Got {', '.join(sorted(given))}. Correct one of them."
            )
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # includes exceptions that would end the process silently
        raise UserError(
            f"The objective {cls.name} in {file} fails on one sentence: {described_in_file(error, file)}. Correct it."
        ) from error
