"""Objects that are single tokens: the candidates for a blank."""

from collections.abc import Sequence
from typing import Literal

from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError
from infoflow.models import Model

from ._facts import OBJECT

Standing = Literal["space", "start", "glued"]
"""What precedes an object: white space, nothing, or another character, as in `([Y])` and in scripts without spaces.

Many tokenizers use a different token for each case.
"""
_BEFORE: dict[Standing, tuple[str, str]] = {"space": ("a", " "), "start": ("", ""), "glued": ("(", "")}


def standing(template: str) -> Standing:
    """What precedes the object in a template."""
    before = template.split(OBJECT)[0]
    if not before.strip():
        return "start"
    return "space" if before[-1].isspace() else "glued"


def object_tokens(
    tokenizer: PreTrainedTokenizerBase, objects: Sequence[str], stands: Standing = "space"
) -> dict[str, int]:
    """The token of each object that is exactly one known token in this position."""
    if not objects:
        return {}
    sign, space = _BEFORE[stands]
    before = tokenizer(sign, add_special_tokens=False)["input_ids"] if sign else []
    rows = tokenizer([f"{sign}{space}{word}" for word in objects], add_special_tokens=False)["input_ids"]
    special = {*tokenizer.all_special_ids}
    return {
        word: row[-1]
        for word, row in zip(objects, rows, strict=True)
        if row[:-1] == before and len(row) == len(before) + 1 and row[-1] not in special
    }


def common_objects(models: Sequence[Model], objects: Sequence[str]) -> tuple[str, ...]:
    """The objects that are one token in every model: the candidates for compared models.

    Raises:
        UserError: A model has no tokenizer.
    """
    if not models:
        raise UserError("A common vocabulary needs at least one model. Got none.")
    common = set(objects)
    for model in models:
        common &= object_tokens(written_by(model), sorted(common)).keys()
    return tuple(sorted(common))


def written_by(model: Model) -> PreTrainedTokenizerBase:
    """The tokenizer of the model's output."""
    return model.target_tokenizer or model.require_tokenizer()
