"""Whether a model's head fits a task, found by its configuration and by trying."""

import torch
from transformers import PreTrainedModel

from infoflow.corpus import Vocabulary
from infoflow.foundation import UserError, as_written
from infoflow.models import evaluating, without_cache

from ._task import AbstractTask, Shape

_OUTPUTS: tuple[Shape, ...] = ("classification", "regression", "tagging")
_OF_TEXTS: tuple[Shape, ...] = ("classification", "regression")


def check_head(task: AbstractTask, module: PreTrainedModel, vocabulary: Vocabulary) -> None:
    """Raise a UserError unless a model's head has an output for each label of the task and reads the whole text.

    Args:
        task: The task.
        module: The model with its head.
        vocabulary: Of the tokens; what padding is.

    Raises:
        UserError: Another number of outputs, the labels in another order, a head that sees nothing of the text (that of
            a BERT that reads left to right, at the first token), or one that padding changes.
    """
    if task.shape not in _OUTPUTS:
        return
    wanted = max(len(task.labels), 1)
    config = module.config
    if config.num_labels != wanted:
        raise UserError(
            f"The head must have {wanted} outputs, one for each label of {task.task}. {type(module).__name__} has "
            f"{config.num_labels}.\nFor a new head load it with num_labels={wanted}, ignore_mismatched_sizes=True; to "
            "keep this one give data with the labels that it was tuned on."
        )
    names = config.id2label or {}
    named = [names[place] for place in sorted(names)]
    if sorted(named) == sorted(task.labels) and named != list(task.labels):
        raise UserError(
            f"The head's labels are in another order than those of {task.task}: {', '.join(map(as_written, named))}.\n"
            "Give them in that order: load_task(labels=[...])."
        )
    if task.shape in _OF_TEXTS:
        _try_head(task, module, vocabulary)


def _try_head(task: AbstractTask, module: PreTrainedModel, vocabulary: Vocabulary) -> None:
    """Whether another word changes what is said, and padding does not."""
    one, other = vocabulary.ordinary[[0, -1]].tolist()
    short = [vocabulary.start, one, one, vocabulary.end]
    changed = [vocabulary.start, one, other, vocabulary.end]
    longer = [vocabulary.start, one, other, one, one, vocabulary.end]
    alone, of_other = (_said(module, [row], vocabulary) for row in (short, changed))
    if torch.equal(alone, of_other):
        raise UserError(
            f"{type(module).__name__} says the same of every text of {task.task}: its head reads the first token, "
            "before which a model that reads left to right has seen nothing.\nUse a head that reads the last token "
            "(GPT-2's does), or a model that reads in both directions."
        )
    if not torch.allclose(_said(module, [short, longer], vocabulary)[:1], alone, rtol=1e-3, atol=1e-4):
        raise UserError(
            f"Padding changes what {type(module).__name__} says of a text of {task.task}. Its configuration has "
            f"pad_token_id {as_written(module.config.pad_token_id)}, the tokenizer {vocabulary.pad}.\n"
            "Set model.config.pad_token_id to the tokenizer's."
        )


def _said(module: PreTrainedModel, rows: list[list[int]], vocabulary: Vocabulary) -> torch.Tensor:
    longest = max(map(len, rows))
    ids = torch.tensor([row + [vocabulary.pad] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
    device = next(module.parameters()).device
    inputs = {"input_ids": ids.to(device), "attention_mask": mask.to(device), **without_cache(module)}
    with evaluating(module):
        return module(**inputs).logits.float()
