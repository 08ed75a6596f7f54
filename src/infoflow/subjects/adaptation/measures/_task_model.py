"""A pretrained body with a fresh head for a task."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers

from infoflow._transformers import BertConfig, EncoderDecoderModel, PreTrainedModel
from infoflow.foundation import UserError, current_display, hash64
from infoflow.models import CausalBertConfig, Model, PlainBertConfig, without_remarks

from ._task import AbstractTask

_READS_THE_START = ("AutoModelForSequenceClassification", "AutoModelForMultipleChoice")
"""Heads that BERT-like models put on the first token, which in a causal model attends to no other token."""
_HEADS = (*_READS_THE_START, "AutoModelForTokenClassification", "AutoModelForQuestionAnswering")
_PROBLEMS = {
    ("classification", False): "single_label_classification",
    ("classification", True): "multi_label_classification",
}
_TWO_NUMBERS = {0: "LABEL_0", 1: "LABEL_1"}
"""Names of the outputs in transformers if there are no classes, such as for start and end of a span."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FreshModel:
    """A model for a task before tuning."""

    module: PreTrainedModel
    fresh: frozenset[str]  # parameters that are not pretrained: those of the head, and of a missing pooler
    replaced: bool = False
    """Whether the pretrained model had a head for texts, tags, choices or spans, which is dropped."""

    @property
    def head(self) -> frozenset[str]:
        """Everything above the body's last states: all fresh parameters, and a pretrained pooler."""
        poolers = {name for name, _ in self.module.named_parameters() if _of_pooler(name)} if self.fresh else set()
        return self.fresh | poolers


def task_model(model: Model, task: AbstractTask, seed: int = 0) -> PreTrainedModel:
    """The body of `model` with a freshly initialised head for `task`, of transformers' class `task.head`.

    The body is exactly the pretrained one; the head depends only on `seed`. Pretrained heads (for words, or for the
    labels of another task) are dropped; a missing pooler is initialised. Notes report this. For understanding tasks,
    only the encoder of a two-model sequence-to-sequence model (`EncoderDecoderModel`) is used; for generation, the
    whole model with its pretrained head. A causal BERT predicts the class at its last token.
    """
    built = fresh_model(model, task, seed)
    tell_of_fresh(built, model, task)
    return built.module


def tell_of_fresh(built: FreshModel, model: Model, task: AbstractTask) -> None:
    """Note that a pooler is initialised at random, and that an existing head is not used."""
    if built.replaced:
        kind = type(model.module).__name__
        current_display().note(
            f"{model.name} is a {kind}: its head{_outputs(model.module)} is dropped, and the head for {task.task}"
            f"{_outputs(built.module)} starts with random weights. Tuning always replaces the head."
        )
    if any(map(_of_pooler, built.fresh)):
        current_display().note(
            f"{model.name} has no pooler: it starts with random weights, like the head for {task.task}."
        )


def _outputs(module: PreTrainedModel) -> str:
    """The number of a head's labels, as words for a message; "" for spans and choices."""
    labels = type(module).__name__.endswith(("ForSequenceClassification", "ForTokenClassification"))
    return f" of {module.config.num_labels} outputs" if labels else ""


def _of_pooler(name: str) -> bool:
    return "pooler" in name.split(".")


def fresh_model(model: Model, task: AbstractTask, seed: int) -> FreshModel:
    """`task_model` with the names of the fresh parameters, and without notes."""
    if task.shape == "generation":
        return FreshModel(module=_writer(model, task), fresh=frozenset())
    source = model.module
    if isinstance(source, EncoderDecoderModel):
        source = source.encoder
    config = _config(model, source, task)
    family = _family(model, config, task)
    module, fresh = _built(family, config, source, seed, model.name)
    return FreshModel(module=module, fresh=fresh, replaced=isinstance(source, _heads(type(source.config))))


def _writer(model: Model, task: AbstractTask) -> PreTrainedModel:
    if model.task not in ("seq2seq", "causal-lm"):
        raise UserError(
            f"{model.name} ({type(model.module).__name__}) generates no text, so it cannot be tuned for {task.task}. "
            "Use a model with a decoder: T5, BART, a translation model, GPT-2."
        )
    module = copy.deepcopy(model.module).float()
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    return module


def _config(model: Model, source: PreTrainedModel, task: AbstractTask) -> Any:
    config: Any = copy.deepcopy(source.config)
    if isinstance(config, PlainBertConfig):  # its body is BERT's, and its head is dropped
        config = BertConfig.from_dict(config.to_dict() | {"model_type": BertConfig.model_type})
    if config.model_type == "bert" and config.is_decoder and task.head in _READS_THE_START:
        config = CausalBertConfig.from_dict(config.to_dict() | {"model_type": CausalBertConfig.model_type})
    config.pad_token_id = padding_id(model)  # GPT-2 uses it to find a text's last token
    if task.shape == "regression":
        config.num_labels, config.problem_type = 1, "regression"
        return config
    config.id2label = dict(enumerate(task.labels)) if task.labels else dict(_TWO_NUMBERS)
    config.label2id = {label: index for index, label in config.id2label.items()}
    config.problem_type = _PROBLEMS.get((task.shape, getattr(task, "multi", False)))
    return config


def padding_id(model: Model) -> int:
    """The token for padding: the tokenizer's, the model's, or else the end of text."""
    tokenizer, config = model.tokenizer, model.module.config
    candidates = (
        getattr(tokenizer, "pad_token_id", None),
        getattr(config, "pad_token_id", None),
        getattr(tokenizer, "eos_token_id", None),
        getattr(config, "eos_token_id", None),
    )
    return next((token for token in candidates if isinstance(token, int) and token >= 0), model.pad_token_id)


def _family(model: Model, config: Any, task: AbstractTask) -> Any:
    families = getattr(transformers, task.head)._model_mapping
    if type(config) not in families:
        raise UserError(
            f"{model.name} ({config.model_type}) has no head for {task.task}: transformers has no {task.head} of its "
            f"family. Tune it for a task of another shape than {task.shape}, or tune another model."
        )
    reads_first = task.head in _READS_THE_START and not isinstance(config, CausalBertConfig)
    if getattr(config, "is_decoder", False) and reads_first:
        raise UserError(
            f"{model.name} does not attend to later tokens, but {config.model_type} classifies a text by its first "
            "token. Tune it for tagging, or tune a causal BERT or GPT-2, which use the last token."
        )
    return _classes(families[type(config)])[0]


def _heads(config: type) -> tuple[type, ...]:
    """The classes with a task head in the model family of this configuration."""
    found = (getattr(transformers, name)._model_mapping.get(config, ()) for name in _HEADS)
    return tuple(one for each in found for one in _classes(each))


def _classes(mapped: Any) -> Sequence[type]:
    """The classes of a family: transformers maps it to one or to several."""
    return mapped if isinstance(mapped, tuple | list) else (mapped,)


def _built(
    family: Any, config: Any, source: PreTrainedModel, seed: int, name: str
) -> tuple[PreTrainedModel, frozenset[str]]:
    body = f"{source.base_model_prefix}." if source.base_model is not source else ""
    weights = {key: one.detach().clone() for key, one in source.state_dict().items() if key.startswith(body)}
    if body and source.base_model_prefix != family.base_model_prefix:
        weights = {f"{family.base_model_prefix}.{key.removeprefix(body)}": one for key, one in weights.items()}
    try:
        with without_remarks(), torch.random.fork_rng():
            torch.manual_seed(hash64("task-head", seed) % 2**63)
            module, report = family.from_pretrained(
                None, config=config, state_dict=weights, dtype=torch.float32, output_loading_info=True
            )
    except RuntimeError as error:  # shapes
        raise _misfit(name, str(error).partition("\n")[0]) from error
    module.config.name_or_path = ""
    fresh = frozenset(report["missing_keys"])
    _check_body(module, fresh, name)
    return module, fresh


def _check_body(module: PreTrainedModel, fresh: frozenset[str], name: str) -> None:
    """Raise a UserError unless everything in the body, except a pooler, was pretrained."""
    start = f"{module.base_model_prefix}."
    if lost := sorted(key for key in fresh if key.startswith(start) and not _of_pooler(key)):
        raise _misfit(name, f"{lost[0]} is missing")


def _misfit(name: str, reason: str) -> UserError:
    return UserError(
        f"The weights of {name} do not fit its configuration ({reason}), so no head can be added to "
        "its body. Tune a model as save_pretrained wrote it; prune heads after tuning."
    )
