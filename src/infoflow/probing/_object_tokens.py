"""Objects that are one token: what a blank is filled with."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError
from infoflow.models import Model

_BEFORE = "a"  # a word before the object: inside a sentence, many tokenizers put the blank into the token


def object_tokens(tokenizer: PreTrainedTokenizerBase, objects: Sequence[str]) -> dict[str, int]:
    """The token of each object that is exactly one inside a sentence; unknown words are none."""
    if not objects:
        return {}
    before = tokenizer(_BEFORE, add_special_tokens=False)["input_ids"]
    rows = tokenizer([f"{_BEFORE} {word}" for word in objects], add_special_tokens=False)["input_ids"]
    special = {*tokenizer.all_special_ids}
    return {
        word: row[-1]
        for word, row in zip(objects, rows, strict=True)
        if row[:-1] == before and len(row) == len(before) + 1 and row[-1] not in special
    }


def common_objects(models: Sequence[Model], objects: Sequence[str]) -> tuple[str, ...]:
    """Those of the objects that are one token of every model: what compared models choose among.

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
    """The tokenizer of what the model writes."""
    return model.target_tokenizer or model.require_tokenizer()
