"""Read a module from a folder, a GGUF file or the hub, after checks of its files and configuration."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from infoflow._transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel, TorchAoConfig, transformers
from infoflow.foundation import (
    UserError,
    as_written,
    current_display,
    launched,
    local_rank,
    missing_extra,
    model_name_of,
    patient_hub,
)

from ._adapter import adapted_classes, base_of, fits, held_shapes, is_adapter_folder, merged, plain_name, set_labels
from ._checks import check_family, check_features, check_folder, check_index, model_class, without_kernels
from ._hub import at_revision, hub_arguments, hub_is_reachable, unreadable
from ._placed import empty_module, keep_folder, placement, quantisation_method
from ._pruned import as_pruned, is_pruned_folder, pruned_family
from ._saved import without_unused
from ._weights import check_loaded, listed, read_gguf

_LONGEST_NAME = 255
_QUANTISED = {"int8": "torchao"}
"""Values of `quantize`, and the package (and extra of infoflow) that each needs.

LLM.int8 of bitsandbytes is not one of them: it rounds states by columns of the whole batch, so each sentence would
affect the others."""
_PLAIN = "Quantise a checkpoint that save_pretrained wrote with unquantised weights, or leave quantize out."


def existing(source: object) -> Path | str:
    """The path if it exists, otherwise the string as a hub name."""
    if not isinstance(source, str | Path):
        given = f"a torch module of another kind ({type(source).__name__})" if isinstance(source, Module) else None
        raise UserError(
            "A model is a hub name, a folder, a .gguf file, or an instance of a transformers model class. "
            f"Got {given or as_written(source)}."
        )
    if isinstance(source, str) and (not source.strip() or "\0" in source):
        raise UserError(
            "A model is a hub name, a folder, or a .gguf file. Got an empty name. For the current folder write ./"
            if not source.strip()
            else "A model's name must not contain a null character."
        )
    path = Path(source).expanduser()
    if len(os.fsencode(path.name)) > _LONGEST_NAME:
        raise UserError(f"A model's name must have at most {_LONGEST_NAME} bytes. Got {len(os.fsencode(path.name))}.")
    if path.is_dir():
        if not (path / "config.json").is_file() and not is_adapter_folder(path):
            held = _models_in(path)
            advice = (
                f"but there are models in {listed(held)}: name one of these."
                if held
                else "name the folder of one checkpoint."
            )
            raise UserError(
                f"A model folder must contain config.json and weights, as save_pretrained writes them. {path} has no "
                f"config.json{',' if held else ':'} {advice}"
            )
        return path
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(f"A model is a hub name, a folder, or a .gguf file. Got the file {path}.")
        return path
    if isinstance(source, Path) or source.startswith((".", "/", "~")) or at_revision(source)[0].count("/") > 1:
        raise UserError(f"No model folder at {path}. Check the path, or use a name on the model hub.")
    return str(source)


def _models_in(folder: Path) -> list[str]:
    """The models of a run, or of a folder of checkpoints, relative to the folder."""
    levels, files = ("*", "*/*", "models/*/*"), ("config.json", "adapter_config.json")
    held = {found.parent for level in levels for file in files for found in folder.glob(f"{level}/{file}")}
    return sorted(str(found.relative_to(folder)) for found in held)


def short_name(home: Path | str) -> str:
    """A hub name in full; for a path, its `model_name_of`."""
    return home if isinstance(home, str) else model_name_of(home)


@contextmanager
def _reading(home: Path | str) -> Iterator[None]:
    """Explain errors of libraries that read the checkpoint at `home`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise unreadable(home, error) from error


def read_module(
    home: Path | str, dtype: torch.dtype, device: str | torch.device = "cpu", quantize: str | None = None
) -> PreTrainedModel:
    """The module saved at `home`, on the CPU unless it is quantised or too large for the device that "auto" means."""
    with _reading(home):
        if quantize is not None:
            _check_quantize(quantize, home)
        if isinstance(home, Path) and home.suffix == ".gguf":
            return read_gguf(home, dtype)
        if isinstance(home, Path) and is_pruned_folder(home):
            return _read_pruned(home, dtype)
        if isinstance(home, Path) and is_adapter_folder(home):
            return _read_adapted(home, dtype)
        config = _configuration(home)
        arguments = _quantised_loading(config, home, quantize, usable_device(device))
        if device == "auto" and not arguments:
            arguments = placement(home, config, _model_class(config, home), dtype.itemsize, usable_device(device))
        model, report = _read_weights(home, config, dtype, **arguments)
    keep_folder(model, arguments.get("offload_folder"))
    check_loaded(model, report, home)
    return model


def _configuration(home: Path | str) -> PreTrainedConfig:
    """The configuration of a checkpoint, after its checks."""
    local = isinstance(home, Path) or not hub_is_reachable()
    where, revision = hub_arguments(home)
    _check_files(where, revision, local)
    config = AutoConfig.from_pretrained(where, trust_remote_code=False, local_files_only=local, **revision)
    check_features(config, home)
    without_kernels(config)
    without_unused(config, Path(where))
    return config


def empty_model(home: Path | str) -> PreTrainedModel:
    """The model of a checkpoint without its weights, which are neither read nor fetched."""
    with _reading(home), patient_hub():
        config = _configuration(home)
        return empty_module(config, _model_class(config, home))


def _read_weights(
    home: Path | str, config: PreTrainedConfig, dtype: torch.dtype, family: type | None = None, **arguments: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The module, and transformers' loading report."""
    where, revision = hub_arguments(home)
    return (family or _model_class(config, home)).from_pretrained(
        where,
        config=config,
        **revision,
        dtype=dtype,
        weights_only=True,
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # refused by `check_loaded`, which names them
        local_files_only=isinstance(home, Path) or not hub_is_reachable(),
        use_kernels=False,
        **arguments,
    )


def _read_pruned(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """A model without some of its heads, from `save_pruned`."""
    config = _configuration(folder)
    family, kept = pruned_family(folder, config)
    model, report = _read_weights(folder, config, dtype, family)
    check_loaded(model, report, folder)
    return as_pruned(model, kept, folder)


def _read_adapted(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The base model of an adapter, in the class that was adapted, with the adapter merged into its weights."""
    base = adapted_base(folder)
    current_display().note(f"Merging the adapter in {folder.name} into the weights of {short_name(base)}.")
    if isinstance(base, Path) and (base.suffix == ".gguf" or is_pruned_folder(base)):
        return merged(read_module(base, dtype), folder)
    with _reading(base):
        config = _configuration(base)
        own = _model_class(config, base)
        own = own._model_mapping[type(config)] if own is AutoModel else own
        set_labels(config, held_shapes(folder))
        families = list(adapted_classes(folder, config, own))
        family = next((one for one in families if fits(one, config, folder)), families[0])
        check_family(family, config, folder)
        model, report = _read_weights(base, config, dtype, family)
    replaced = {plain_name(key) for key in held_shapes(folder)}
    report["missing_keys"] = {name for name in report["missing_keys"] if name not in replaced}
    report["mismatched_keys"] = {one for one in report["mismatched_keys"] if one[0] not in replaced}
    if family is not own:  # the base model's head differs from the adapted model's
        report["unexpected_keys"] = set()
    check_loaded(model, report, base)
    return merged(model, folder)


def adapted_base(folder: Path) -> Path | str:
    """The model that an adapter in a folder was trained on, which must not be an adapter itself."""
    base = existing(base_of(folder))
    if isinstance(base, Path) and is_adapter_folder(base):
        raise UserError(f"The adapter in {folder} belongs to another adapter, {base}. Merge that one first, with peft.")
    return base


def _check_files(home: Path | str, revision: Mapping[str, str], local: bool) -> None:
    """Check the files of a folder, or of a name on the hub, before transformers loads them."""
    if isinstance(home, Path):
        check_folder(home)
        return
    index = transformers.utils.cached_file(
        home,
        transformers.utils.SAFE_WEIGHTS_INDEX_NAME,
        **revision,
        local_files_only=local,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if index is not None:
        check_index(Path(index))


def _model_class(config: PreTrainedConfig, home: Path | str) -> type:
    names = config.architectures or []
    if not isinstance(names, list | tuple):
        names = [names]
    if not names:
        return AutoModel
    family = model_class(names[0], home)
    check_family(family, config, home)
    return family


def usable_device(device: str | torch.device) -> torch.device:
    """The device with that name; "auto" is a GPU if there is one."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if str(device) == "cuda" and torch.cuda.device_count() > 1 and launched()[1] > 1:
        device = f"cuda:{local_rank() % torch.cuda.device_count()}"  # plain cuda is the first GPU everywhere
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"--device must name a device that torch can use here. Got {device}: {reason}") from error
    return found


def _check_quantize(quantize: str, home: Path | str) -> None:
    """Refuse what cannot be quantised while loading, before anything is read or fetched."""
    if quantize not in _QUANTISED:
        raise UserError(f"quantize must be one of {', '.join(_QUANTISED)}. Got {quantize[:40]}.")
    package = _QUANTISED[quantize]
    if find_spec(package) is None:
        raise missing_extra(f"--quantize {quantize}", package, package)
    if isinstance(home, Path) and not (home / "config.json").is_file():
        what = "a .gguf file, whose weights are expanded" if home.suffix == ".gguf" else "an adapter, which is merged"
        raise UserError(f"quantize cannot be used here: {home.name} is {what}. {_PLAIN}")
    if isinstance(home, Path) and is_pruned_folder(home):
        raise UserError(f"quantize cannot be used here: {home.name} is a pruned model. {_PLAIN}")


def _quantised_loading(
    config: PreTrainedConfig, home: Path | str, quantize: str | None, device: torch.device
) -> dict[str, Any]:
    """Arguments of `from_pretrained` for weights that are saved quantised, or quantised on `device`; else empty."""
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
