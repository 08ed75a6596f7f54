"""Fits a task to a model: maximum lengths of inputs and targets, and the first token of targets."""

from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from infoflow.foundation import UserError, current_display
from infoflow.models import Model

from ._generation import Generation
from ._generation_rows import text_format
from ._task import AbstractTask
from ._tune_config import TuneConfig


def fitted(task: AbstractTask, model: Model, config: TuneConfig) -> AbstractTask:
    """The task with a target length of `config.max_target`, within the model's positions.

    The loss starts at the first token that the model does not read anyway.

    A single decoder reads source and target in one row: the target gets the positions left by `config.max_length`, or
    half of the positions if that is more.

    Raises:
        UserError: `config.max_target` is set for a task that writes nothing.
    """
    if not isinstance(task, Generation):
        if config.max_target:
            raise UserError(
                f"tune.max_target only applies to generation. Got {config.max_target} for {task.task}, "
                f"a task of the shape {task.shape}. Leave it out."
            )
        return task
    begin = _begin(model)
    read = begin is not None and (
        model.task != "seq2seq" or begin == getattr(model.module.config, "decoder_start_token_id", None)
    )
    wanted, limit = config.max_target or task.max_target, model.max_target_tokens
    if limit is None:
        room = wanted
    elif model.task == "seq2seq":
        room = limit - (begin is not None and not read)
    else:
        room = max(limit // 2, limit + 1 - config.max_length)
    return replace(task, max_target=max(min(wanted, room), 1), begin_is_read=read)


def tell_of_room(task: AbstractTask, asked: AbstractTask, model: Model, config: TuneConfig) -> None:
    """Note if targets are shorter than requested."""
    if not isinstance(task, Generation) or not isinstance(asked, Generation):
        return
    if task.max_target < (config.max_target or asked.max_target):
        current_display().note(
            f"{task.task}: target texts have at most {task.max_target} tokens, since {model.name} has "
            f"{model.max_target_tokens} positions."
        )


def input_length(model: Model, max_length: int, task: AbstractTask) -> int:
    """Maximum number of input tokens: the requested length, within the model's positions.

    For a single decoder, which reads the target after the input, the positions that the target leaves.
    """
    limit = model.max_tokens
    if limit is not None and isinstance(task, Generation) and model.task == "causal-lm":
        limit = max(limit + 1 - task.max_target, limit // 2)
    return max_length if limit is None else min(max_length, limit)


def _begin(model: Model) -> int | None:
    """The token that the tokenizer puts before a target."""
    tokenizer: PreTrainedTokenizerBase = model.target_tokenizer or model.require_tokenizer()
    return text_format(tokenizer, target=model.target_tokenizer is None).start
