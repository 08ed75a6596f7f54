"""Metadata of an adapter folder from `peft`: the model that it belongs to, and its class."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import transformers
from safetensors import safe_open
from transformers import PreTrainedConfig, PreTrainedModel

from infoflow.foundation import UserError

from ._checks import model_class, read_object

_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_WHOLE = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_PREFIX = "base_model.model."
_TASKS = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoModel",
}
_OWN_FIRST = ("CAUSAL_LM", "SEQ_2_SEQ_LM")  # tasks that the base model performs anyway
_CLASSIFIER = re.compile(r"base_model\.model\.(classifier|score|classification_head)\.((out_proj|dense)\.)?weight")
_VIRTUAL = {"PREFIX_TUNING", "PROMPT_TUNING", "P_TUNING", "MULTITASK_PROMPT_TUNING", "ADAPTION_PROMPT", "CPT"}


def is_adapter_folder(path: Path) -> bool:
    """Whether a folder holds only an adapter; some trainers add the base model's config.json."""
    return (path / _CONFIG).is_file() and not any((path / name).is_file() for name in _WHOLE)


def base_of(folder: Path) -> str:
    """The model that an adapter was trained on, from its configuration.

    A folder (relative to the working directory, the adapter, or its parent) or a name on the hub.

    Raises:
        UserError: It names none, the adapter cannot be merged, or its weights are not safetensors.
    """
    facts = read_object(folder / _CONFIG)
    kind, base = facts.get("peft_type"), facts.get("base_model_name_or_path")
    if not isinstance(kind, str) or kind in _VIRTUAL:
        raise UserError(
            f"The adapter in {folder} must change weights, as LoRA, DoRA and IA3 do. Its adapter_config.json says "
            f"peft_type {kind if isinstance(kind, str) else 'of no name'}"
            f"{', which prepends virtual tokens to the text' if isinstance(kind, str) else ''}. Use another adapter."
        )
    if facts.get("megatron_config"):
        raise UserError(f"The adapter in {folder} needs Megatron, which infoflow does not run. Use another adapter.")
    if not (folder / _WEIGHTS).is_file():
        raise UserError(
            f"The adapter in {folder} must be saved as {_WEIGHTS}. There is none; weights in .bin files are "
            "pickles, which "
            "infoflow does not open. Save the adapter as safetensors."
        )
    if not isinstance(base, str) or not base.strip():
        raise UserError(
            f"The adapter in {folder} does not say which model it belongs to (base_model_name_or_path in its "
            "adapter_config.json). Write the model's folder or hub name there."
        )
    if Path(base).expanduser().exists():
        return base
    beside = (folder / base, folder.parent / base)
    return str(next((one for one in beside if (one / "config.json").is_file() or one.is_file()), base))


def held_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights in an adapter's file."""
    with safe_open(folder / _WEIGHTS, framework="pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no mapping


def adapted_classes(
    folder: Path, config: PreTrainedConfig, own: type[PreTrainedModel]
) -> Iterator[type[PreTrainedModel]]:
    """Candidate classes of the adapted model, most likely first; `own` is the class of the base model's checkpoint.

    `peft` records the class itself unless a task was given; then the task determines the head.
    """
    facts = read_object(folder / _CONFIG)
    written, task = facts.get("auto_mapping"), facts.get("task_type")
    if isinstance(written, dict) and written.get("base_model_class"):
        yield model_class(written["base_model_class"], folder)
        return
    for_task = _class_for(_TASKS.get(task) if isinstance(task, str) else None, config)
    order = [own, for_task] if task in _OWN_FIRST else [for_task, own]
    yield from dict.fromkeys(one for one in (*order, _class_for("AutoModel", config)) if one is not None)


def _class_for(auto: str | None, config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    if auto is None:
        return None
    found: Any = getattr(transformers, auto)._model_mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple | list) else found


def set_labels(config: PreTrainedConfig, held: dict[str, tuple[int, ...]]) -> None:
    """Set a configuration's number of labels to that of the classifier in the adapter's file."""
    found = [shape for name, shape in held.items() if _CLASSIFIER.fullmatch(name) and ".dense." not in name]
    if len(found) == 1 and len(found[0]) == 2:
        config.num_labels = found[0][0]


def plain_name(key: str) -> str:
    """The adapted model's name of a weight in an adapter's file."""
    return re.sub(r"\.(token_adapter\.)?(base_layer|original_module)\.", ".", key.removeprefix(_PREFIX))
