"""Read GGUF files, after comparing the file's tensors with those that transformers expects."""

import io
from contextlib import redirect_stderr
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import decoders, normalizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from infoflow.foundation import UserError, current_display, missing_extra

from ._weights import check_loaded, listed

_WITH_BOS = {"llama3", "llama-v3", "llama-bpe"}  # llama.cpp adds BOS unless the file says not to
_READ_ANEW = {"qwen35", "qwen35moe", "lfm2"}  # transformers reports what these lack when it reads them


def read_gguf(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model in a GGUF file, with its quantised weights expanded.

    Raises:
        UserError: The file lacks tensors of its model, or holds some that transformers ignores.
    """
    if find_spec("gguf") is None:
        raise missing_extra("Reading a .gguf file", "gguf", "gguf")
    # transformers de-quantises weights one by one with a progress bar that cannot be disabled.
    with redirect_stderr(io.StringIO()):
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    _check_tensors(path, config)
    current_display().note(f"Reading {path.name} and converting its quantised weights to {dtype}")
    with redirect_stderr(io.StringIO()):
        found: Any = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            config=config,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    model, report = found
    check_loaded(model, report, path)
    return model


def read_gguf_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a GGUF file, with the same tokens as llama.cpp.

    transformers ignores that a sentencepiece vocabulary needs no space before the text, and that Llama 3 starts with
    BOS if the file does not specify it.
    """
    from gguf import GGUFReader

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    start = "tokenizer.ggml."
    fields = GGUFReader(str(path)).fields
    names = ("model", "pre", "add_space_prefix", "add_bos_token")
    facts = {name: fields[start + name].contents() for name in names if start + name in fields}
    adds_space = tokenizer.tokenize("the")[:1] and tokenizer.tokenize("the")[0].startswith("▁")
    if facts.get("model") == "llama" and facts.get("add_space_prefix") is False and adds_space:
        backend = tokenizer.backend_tokenizer
        backend.normalizer, backend.pre_tokenizer = normalizers.Replace(" ", "▁"), None
        backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    if facts.get("pre") in _WITH_BOS and "add_bos_token" not in facts:
        tokenizer.add_bos_token = True
    return tokenizer


def _check_tensors(path: Path, config: PreTrainedConfig) -> None:
    from gguf import GGUFReader

    reader = GGUFReader(str(path))
    facts = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
    _check_metadata(path, facts)
    kind = str(facts.get("general.architecture"))
    if kind in _READ_ANEW:
        return
    names, expected = {tensor.name for tensor in reader.tensors}, _expected(config, kind)
    if "output.weight" not in names:
        current_display().note(
            f"{path.name} has no output matrix (output.weight), so the embeddings are used for it, as in llama.cpp."
        )
    if lacking := {one for one in expected if one not in names and f"{one}.weight" not in names}:
        raise UserError(
            f"{path} lacks {len(lacking)} tensors of {config.model_type}, which would be random: {listed(lacking)}. "
            "Download or convert the model again. A model split over several files must be merged first "
            "(llama-gguf-split --merge)."
        )
    if ignored := {one for one in names if one not in expected and one.removesuffix(".weight") not in expected}:
        raise UserError(
            f"{path} holds {len(ignored)} tensors that transformers does not read for {config.model_type}, so "
            f"results would be wrong: {listed(ignored)}. Use the model in the safetensors format."
        )


def _check_metadata(path: Path, facts: dict[str, Any]) -> None:
    kind, parts = facts.get("general.architecture"), facts.get("split.count")
    if isinstance(parts, int) and parts > 1:
        raise UserError(
            f"{path} is part {facts.get('split.no', 0) + 1} of {parts} of a split model. Merge the parts first: "
            "llama-gguf-split --merge FIRST_PART OUTPUT."
        )
    scaling = facts.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none" and kind != "gpt-oss":
        raise UserError(
            f"{path} scales its rotary positions ({scaling}), which transformers does not read from a GGUF file, so "
            "results would be wrong. Use the model in the safetensors format."
        )


def _expected(config: PreTrainedConfig, kind: str) -> set[str]:
    """Names of the tensors, in GGUF's form, that transformers will look for."""
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        get_gguf_hf_weights_map,
    )

    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config)
    processor = TENSOR_PROCESSORS.get(kind, TensorProcessor)(config={})
    names = get_gguf_hf_weights_map(skeleton, processor)
    # llama.cpp omits an output matrix that equals the embeddings.
    tied = {"output.weight"} if config.tie_word_embeddings else set()
    return set(names) - tied
