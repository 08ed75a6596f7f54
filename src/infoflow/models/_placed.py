"""Weights that are not all on one device: spread or offloaded by accelerate, or quantised."""

import copy
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from infoflow.foundation import UserError, available_memory, current_display, launched, said_size

_ROOM = 1.1  # factor on the weights' memory, for states and logits
_SHARE = 0.9  # share of free memory that accelerate may fill
_WIDEST = 4  # in memory, weights take at most this many times the bytes that they take in their file


def is_placed(module: nn.Module) -> bool:
    """Whether accelerate moves inputs or weights between devices while the model runs."""
    return "_hf_hook" in vars(module)


def input_device(module: PreTrainedModel) -> torch.device:
    """The device for input ids: where the embedding runs, wherever its weights are stored."""
    if not is_placed(module):
        return module.device
    for child in (module.get_input_embeddings(), module):
        hook = vars(child).get("_hf_hook")
        for one in getattr(hook, "hooks", [hook]):
            device = getattr(one, "execution_device", None)
            if device is not None:
                return torch.device(device)
    return module.device


def on_several_devices(module: nn.Module) -> bool:
    """Whether layers run on different devices."""
    hooks = [vars(child).get("_hf_hook") for child in module.modules()]
    single = [one for hook in hooks for one in getattr(hook, "hooks", [hook])]
    devices = {getattr(one, "execution_device", None) for one in single} - {None}
    return len({torch.device(device) for device in devices}) > 1


def place_like(module: PreTrainedModel, other: PreTrainedModel) -> PreTrainedModel:
    """Place a model of the same architecture as accelerate placed `other`."""
    from accelerate import dispatch_model  # slow import

    devices = getattr(other, "hf_device_map", None)
    if not is_placed(other) or not devices:
        return module
    folder = tempfile.mkdtemp(prefix="infoflow-offload-")
    keep_folder(module, folder)
    return dispatch_model(module, devices, main_device=input_device(other), offload_dir=folder)


def unusual_weights(module: nn.Module) -> str | None:
    """Why the weights cannot be copied or changed, as the end of a sentence; None if they can."""
    if method := quantisation(module):
        return f"they are quantised ({method})"
    if is_placed(module) or any(one.is_meta for one in module.parameters()):
        return "accelerate placed them (several devices, or offloaded)"
    return None


def quantisation(module: nn.Module) -> str | None:
    """The method by which the weights are quantised."""
    settings = getattr(getattr(module, "config", None), "quantization_config", None)
    if settings is None or not getattr(module, "is_quantized", False):
        return None
    return quantisation_method(settings if isinstance(settings, dict) else settings.to_dict())


def quantisation_method(settings: dict[str, Any]) -> str:
    """The method that a checkpoint's `quantization_config` names."""
    method = settings.get("quant_method")
    return str(getattr(method, "value", method))


def require_whole(module: nn.Module, name: str, what: str) -> None:
    """Refuse to copy or change weights that are not all on one device."""
    if reason := unusual_weights(module):
        raise UserError(
            f"{what} needs a copy of the weights. Those of {name} cannot be copied: {reason}. Load it whole on one "
            "device, without quantize."
        )


def weight_of(module: nn.Module, name: str = "weight") -> Tensor:
    """Weight or bias of one linear or embedding module, read if it is offloaded and expanded if it is quantised."""
    from accelerate.utils import align_module_device  # slow import

    with align_module_device(module):
        weight = getattr(module, name, None)
        if isinstance(weight, Tensor) and not weight.is_meta:
            if hasattr(weight, "__tensor_flatten__"):  # torchao
                return weight.dequantize().detach()
            if hasattr(weight, "quant_state") or hasattr(weight, "SCB"):
                from transformers.integrations.bitsandbytes import dequantize_bnb_weight

                return dequantize_bnb_weight(weight, getattr(module, "state", None)).detach()
            if weight.is_floating_point():
                return weight.detach()
    raise UserError(
        f"The weights of a {type(module).__name__} cannot be read as numbers: they are quantised, or not loaded. "
        "Load the model without quantize, from its folder or name."
    )


def loaded(module: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Named tensors of a module; offloaded tensors are read one at a time, quantised ones part by part."""
    for name, tensor in tensors:
        for part, value in _parts(name, _loaded(module, name) if tensor.is_meta else tensor):
            yield part, value.detach()


def _parts(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    if not hasattr(tensor, "__tensor_flatten__"):
        yield name, tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from _parts(f"{name}.{part}", getattr(tensor, part))


def _loaded(module: nn.Module, name: str) -> Tensor:
    """An offloaded tensor; the hook that holds it belongs to its module or to an enclosing one."""
    from accelerate.utils import align_module_device  # slow import

    owners = name.split(".")[:-1]
    for depth in range(len(owners), -1, -1):
        with align_module_device(module.get_submodule(".".join(owners[:depth]))):
            found = getattr(module.get_submodule(".".join(owners)), name.rpartition(".")[2])
            if not found.is_meta:
                return found
    raise UserError(
        f"The weights of the {type(module).__name__} must be loaded. {name} is on no device (meta), and accelerate has "
        "no copy of it. Load the model from its folder or name."
    )


def placement(
    home: Path | str, config: PreTrainedConfig, family: Any, item_bytes: float, device: torch.device
) -> dict[str, Any]:
    """Arguments of `from_pretrained` that let accelerate spread a model too large for `device`; none if it fits.

    A weight takes `item_bytes` once it is loaded.
    """
    free = _free(device)
    if free is None or launched()[1] > 1 or _fits_surely(home, free):
        return {}
    size = sum(one.numel() for one in empty_module(config, family).parameters()) * item_bytes
    if size * _ROOM <= free:
        return {}
    gpus = range(torch.cuda.device_count()) if device.type == "cuda" else ()
    limits: dict[int | str, int] = {index: int(_SHARE * (_free(torch.device("cuda", index)) or 0)) for index in gpus}
    limits["cpu"] = int(_SHARE * (available_memory() or 0) / _ROOM)
    current_display().note(
        f"{home} takes {said_size(size)}, and {device} has {said_size(free)} free: accelerate places its layers on all "
        "devices, in memory and on disk. The model then runs more slowly, with the same results."
    )
    folder = tempfile.mkdtemp(prefix="infoflow-offload-")
    return {"device_map": "auto", "max_memory": limits, "offload_folder": folder}


def keep_folder(module: nn.Module, folder: str | None) -> None:
    """Keep the folder of offloaded weights, if there is one, for as long as the module exists."""
    if folder is not None:
        weakref.finalize(module, shutil.rmtree, folder, ignore_errors=True)


def _free(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return available_memory() if device.type == "cpu" else None


def _fits_surely(home: Path | str, free: int) -> bool:
    if not isinstance(home, Path):
        return False
    return _WIDEST * sum(one.stat().st_size for one in home.iterdir() if one.suffix in (".safetensors", ".bin")) < free


def empty_module(config: PreTrainedConfig, family: Any) -> PreTrainedModel:
    """A model without weights, for counting its parameters."""
    own = copy.deepcopy(config)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return family.from_config(own) if family is AutoModel else family(own)
