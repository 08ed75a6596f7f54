"""Quantised weights: quantised while loading, or saved quantised."""

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from infoflow._transformers import PreTrainedConfig, TorchAoConfig
from infoflow.foundation import UserError, missing_extra

from ._placed import quantisation_method
from ._pruned import is_pruned_folder

QUANTISED = {"int8": "torchao"}
"""Values of `quantize`, and the package (and extra of infoflow) that each needs.

LLM.int8 of bitsandbytes is not one of them: it rounds states by columns of the whole batch, so sentences would change
each other."""
_PLAIN = "Quantise a checkpoint that save_pretrained wrote with unquantised weights, or leave quantize out."


def check_quantize(quantize: str, home: Path | str) -> None:
    """Refuse what cannot be quantised while loading, before anything is read or fetched."""
    if quantize not in QUANTISED:
        raise UserError(f"quantize must be one of {', '.join(QUANTISED)}. Got {quantize[:40]}.")
    package = QUANTISED[quantize]
    if find_spec(package) is None:
        raise missing_extra(f"--quantize {quantize}", package, package)
    if isinstance(home, Path) and not (home / "config.json").is_file():
        what = "a .gguf file, whose weights are expanded" if home.suffix == ".gguf" else "an adapter, which is merged"
        raise UserError(f"quantize cannot be used here: {home.name} is {what}. {_PLAIN}")
    if isinstance(home, Path) and is_pruned_folder(home):
        raise UserError(f"quantize cannot be used here: {home.name} is a pruned model. {_PLAIN}")


def quantised_loading(
    config: PreTrainedConfig, home: Path | str, quantize: str | None, device: torch.device
) -> dict[str, Any]:
    """Arguments of `from_pretrained` for quantised weights; empty for other weights.

    Args:
        config: The checkpoint's configuration, which says whether its weights are saved quantised.
        home: Folder or name, for messages.
        quantize: One of `QUANTISED`, or None.
        device: Where the model will be.
    """
    saved = getattr(config, "quantization_config", None)
    if saved is None and quantize is None:
        return {}
    if saved is None:
        return {"quantization_config": _settings(), "device_map": {"": str(device)}}
    saved = saved if isinstance(saved, dict) else saved.to_dict()
    method = quantisation_method(saved)
    if quantize is not None:
        raise UserError(f"The weights of {home} are saved quantised ({method}). Got quantize {quantize}: leave it out.")
    _require_gpu_for_4bit(bool(saved.get("load_in_4bit")), device)
    from transformers.quantizers import AutoHfQuantizer  # slow import

    try:
        quantizer = AutoHfQuantizer.from_config(saved, pre_quantized=True)
        quantizer.validate_environment(device_map={"": str(device)}, weights_only=True)
    except (ImportError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise UserError(
            f"The weights of {home} are saved quantised ({method}), and cannot be read here: {reason}. Install what is "
            "missing, or use the checkpoint from which they were made."
        ) from error
    return {"device_map": {"": str(device)}}


def _settings() -> Any:
    for name in ("torchao", "torch.utils._pytree"):  # these log warnings about their own parts at import
        logging.getLogger(name).setLevel(logging.ERROR)
    from torchao.quantization import (  # pyright: ignore[reportMissingImports]  # the extra `torchao`
        Int8WeightOnlyConfig,
    )

    return TorchAoConfig(Int8WeightOnlyConfig())


def _require_gpu_for_4bit(four_bits: bool, device: torch.device) -> None:
    """Refuse 4-bit weights on a CPU, where bitsandbytes 0.50 repacks, expands and differentiates them wrongly."""
    if four_bits and device.type == "cpu":
        raise UserError(
            "4-bit weights of bitsandbytes need a GPU: on a CPU its gradients are wrong. Got the device cpu. Use a "
            "GPU, or the checkpoint from which they were made."
        )
