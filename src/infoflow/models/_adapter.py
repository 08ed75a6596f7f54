"""Adapters of `peft`: what their folders contain, and how they are merged into their models."""

import copy
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from infoflow._transformers import PreTrainedConfig, PreTrainedModel, transformers
from infoflow.foundation import UserError

from ._checks import model_class, read_object
from ._first_pass import run_tiny, tiny_inputs
from ._modules import evaluating
from ._weights import check_finite

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

    It is a folder (relative to the working directory, the adapter, or the adapter's parent) or a name on the hub.
    """
    facts = read_object(folder / _CONFIG)
    kind, base = facts.get("peft_type"), facts.get("base_model_name_or_path")
    if not isinstance(kind, str) or kind in _VIRTUAL:
        raise UserError(
            f"The adapter in {folder} must change weights, as LoRA, DoRA and IA3 do. Its adapter_config.json has "
            f"{f'peft_type {kind}' if isinstance(kind, str) else 'no peft_type'}"
            f"{', which prepends virtual tokens to the text' if isinstance(kind, str) else ''}. Use another adapter."
        )
    if facts.get("megatron_config"):
        raise UserError(f"The adapter in {folder} needs Megatron, which infoflow does not run. Use another adapter.")
    if not (folder / _WEIGHTS).is_file():
        raise UserError(
            f"The adapter in {folder} must be saved as {_WEIGHTS}. There is none; weights in .bin files are pickles, "
            "which infoflow does not open. Save the adapter as safetensors."
        )
    if not isinstance(base, str) or not base.strip():
        raise UserError(
            f"The adapter in {folder} does not say which model it belongs to (base_model_name_or_path in its "
            "adapter_config.json). Write the model's folder or hub name there."
        )
    if Path(base).expanduser().exists():
        return base
    candidates = (folder / base, folder.parent / base)
    return str(next((one for one in candidates if (one / "config.json").is_file() or one.is_file()), base))


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
    """The name that a weight of an adapter's file has in the adapted model."""
    return re.sub(r"\.(token_adapter\.)?(base_layer|original_module)\.", ".", key.removeprefix(_PREFIX))


_ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-5}  # relative; 2e-2 in half precision


def fits(family: type[PreTrainedModel], config: PreTrainedConfig, folder: Path) -> bool:
    """Whether the adapter's file holds exactly the weights of an adapter on a model of this class."""
    from peft import PeftConfig, PeftModel

    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = PeftConfig.from_pretrained(str(folder))
            adapted = PeftModel(family(copy.deepcopy(config)), settings, low_cpu_mem_usage=True)
    except Exception:  # peft finds none of its target modules, or needs weights
        return False
    return not _difference(adapted, set(held_shapes(folder)))


def merged(base: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with the adapter merged into its weights. Tied weights that now differ are untied.

    Raises:
        UserError: The adapter belongs to another model, or cannot be merged into weights.
    """
    held = held_shapes(folder)
    _resize(base, folder, held)
    adapted = _adapted(base.eval(), folder, set(held))
    inner = adapted.get_base_model()
    expected = _computed(inner, folder)
    without_bias = _computed_without_bias(inner)
    _untie(inner)
    try:
        whole = adapted.merge_and_unload()
    except Exception as error:
        raise _unmergeable(folder, str(error).partition("\n")[0].rstrip(".") or type(error).__name__) from error
    _forget_ties(whole)
    for name in without_bias:
        nn.init.zeros_(whole.get_submodule(name).bias)
    with evaluating(whole), torch.no_grad():
        found = run_tiny(whole, tiny_inputs(whole))
    tolerance = _ROUNDING.get(found.dtype, 2e-2)
    if bool(expected.isfinite().all()) and not (found - expected).norm() <= tolerance * expected.norm():
        raise _unmergeable(folder, "the merged model does not compute the same as the adapted one")
    return whole


def _computed(adapted: PreTrainedModel, folder: Path) -> Tensor:
    try:
        with evaluating(adapted), torch.no_grad():
            found = run_tiny(adapted, tiny_inputs(adapted))
    except UserError as error:
        raise _unmergeable(folder, str(error).partition("\n")[0].rstrip(".")) from error
    if found.isnan().any():
        check_finite(adapted, folder)
        raise _unmergeable(folder, "with it, the model's outputs are NaN")
    return found


def _computed_without_bias(adapted: nn.Module) -> list[str]:
    """Output matrices tied to trained tokens; peft computes them without their bias, in training too (BERT)."""
    from peft.tuners.trainable_tokens import TrainableTokensLayer

    layers = {name: child for name, child in adapted.named_modules() if isinstance(child, TrainableTokensLayer)}
    bases = {name: layer.get_base_layer() for name, layer in layers.items()}
    return [
        name.removesuffix(".token_adapter")
        for name, base in bases.items()
        if isinstance(base, nn.Linear) and base.bias is not None
    ]


def _adapted(base: PreTrainedModel, folder: Path, held: set[str]) -> Any:
    from peft import PeftModel

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they list missing weights, which are compared below
            adapted = PeftModel.from_pretrained(base, folder, torch_device="cpu").eval()
    except (KeyError, ValueError, RuntimeError, TypeError, IndexError, AttributeError) as error:
        raise _of_another(folder, base, str(error).partition("\n")[0]) from error
    if not hasattr(adapted.base_model, "merge_and_unload"):
        raise _unmergeable(folder, f"peft cannot merge a {type(adapted.base_model).__name__}")
    if trouble := _difference(adapted, held):
        raise _of_another(folder, base, trouble)
    return adapted


def _difference(adapted: Any, held: set[str]) -> str:
    """A weight that is only in the adapter's file or only in the model; "" if there is none."""
    from peft import get_peft_model_state_dict

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        needed = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        possible = needed | set(get_peft_model_state_dict(adapted, save_embedding_layers=True))
    # This name's last part varies between versions of peft.
    held, needed, possible = (
        {name.removesuffix(".weight") if ".lora_magnitude_vector" in name else name for name in names}
        for names in (held, needed, possible)
    )
    if lost := sorted(needed - held):
        return f"{lost[0]} is only in the model"
    known = {plain_name(name) for name in possible}
    strange = sorted(name for name in held - possible if plain_name(name) not in known)
    return f"{strange[0]} is only in the file" if strange else ""


def _resize(base: PreTrainedModel, folder: Path, held: Mapping[str, tuple[int, ...]]) -> None:
    """Resize the embeddings as in the adapter's file, if tokens were added before the adapter was trained."""
    embedding = base.get_input_embeddings()
    name = next((name for name, child in base.named_modules() if child is embedding), None)
    if name is None or not isinstance(getattr(embedding, "weight", None), Tensor):
        return
    size, found = embedding.weight.shape[0], {plain_name(key): shape for key, shape in held.items()}
    whole, low_rank = found.get(f"{name}.weight"), found.get(f"{name}.lora_embedding_A")
    if whole is not None and whole[0] != size:
        with torch.random.fork_rng(devices=[]):  # the new rows are random until they are replaced
            base.resize_token_embeddings(whole[0], mean_resizing=False)
    elif low_rank is not None and low_rank[-1] != size:
        raise UserError(
            f"The adapter in {folder} has a vocabulary of {low_rank[-1]} tokens, and its base model one of {size}. "
            "The embeddings of the added tokens were not saved. Save the adapter with save_embedding_layers=True."
        )


def _untie(model: nn.Module) -> None:
    """Copy every tied weight that an adapter changes, since merging changes only one of its uses."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    uses: dict[int, int] = {}
    for child in model.modules():
        for parameter in child.parameters(recurse=False):
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    for child in model.modules():
        if not isinstance(child, BaseTunerLayer):
            continue
        base = child.get_base_layer()
        for name, parameter in list(base.named_parameters(recurse=False)):
            if uses.get(id(parameter), 0) > 1:
                uses[id(parameter)] -= 1
                setattr(base, name, nn.Parameter(parameter.detach().clone(), parameter.requires_grad))


def _forget_ties(model: PreTrainedModel) -> None:
    """If weights that the configuration ties now differ, disable all ties, so that nothing ties them again."""
    ties = getattr(model, "all_tied_weights_keys", None) or {}
    weights = dict(model.named_parameters(remove_duplicate=False))
    if all(weights.get(one) is weights.get(other) for one, other in ties.items()):
        return
    for part in {id(one): one for one in (model.config, model.config.get_text_config())}.values():
        part.tie_word_embeddings = False
    model.all_tied_weights_keys = {}
    for one, other in ties.items():
        if weights.get(one) is weights.get(other) and one in weights:
            owner, _, name = one.rpartition(".")
            setattr(model.get_submodule(owner), name, nn.Parameter(weights[one].detach().clone()))


def _of_another(folder: Path, base: PreTrainedModel, why: str) -> UserError:
    return UserError(
        f"The adapter in {folder} does not fit its base model ({type(base).__name__}): {why}.\n"
        "Use an adapter of this model, or name the right model in its adapter_config.json."
    )


def _unmergeable(folder: Path, why: str) -> UserError:
    return UserError(
        f"The adapter in {folder} cannot be merged into the weights of its model: {why}. Use a LoRA, DoRA or IA3 "
        "adapter, or a whole model."
    )
