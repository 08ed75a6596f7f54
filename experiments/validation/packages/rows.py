"""What every comparison gives: rows of the table. Also the arrays and small models that several comparisons share."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

sys.path.append(str(Path(__file__).parents[2] / "campaigns" / "families"))  # tiny random models of every family

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Folders of packages that PyPI does not have, and the Python that runs DADApy; None: not given."""

    netrep: Path | None = None
    resi: Path | None = None
    transparency: Path | None = None
    lxt: Path | None = None
    dadapy: Path | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One comparison. They agree if the difference is at most the tolerance."""

    function: str  # ours, under infoflow
    package: str
    compared: str
    difference: float
    tolerance: float
    right: str = "both"  # who is right, and why


def largest(ours: object, theirs: object, relative: bool = False) -> float:
    """The largest absolute difference, or its share of the largest number of theirs."""
    first, second = (np.asarray(_detached(value), dtype=np.float64) for value in (ours, theirs))
    assert first.shape == second.shape, (first.shape, second.shape)
    return float(np.abs(first - second).max() / (np.abs(second).max() if relative else 1))


def _detached(value: object) -> object:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    return [_detached(one) for one in value] if isinstance(value, list | tuple) else value


def views() -> dict[str, tuple[Array, Array]]:
    """Pairs of views of the same rows: of one width, of two, and with fewer rows than columns."""
    draw = np.random.default_rng(0)
    shared = draw.standard_normal((500, 20)) * np.linspace(3, 0.2, 20) + 1
    other = shared @ draw.standard_normal((20, 20)) + 2 * draw.standard_normal((500, 20))
    few, fewer = draw.standard_normal((30, 50)), draw.standard_normal((30, 50))
    return {
        "500 rows of width 20": (shared, other),
        "500 rows of widths 12 and 20": (shared[:, :12].copy(), other),
        "30 rows of width 50": (few, fewer + few),
    }


def unit_variance(view: Array) -> Array:
    """The centred view, divided so that the variances of its columns add up to 1 over all rows."""
    moved = view - view.mean(axis=0)
    return moved / np.linalg.norm(moved)


IDS = torch.tensor([[5, 6, 7, 8, 9, 11]])
POSITION, TARGET = 4, 12


def tiny(family: str, **changes: int) -> torch.nn.Module:
    """A random model of three layers and four heads, in float64, with weights far from zero."""
    import transformers

    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 32}
    grouped = sizes | {"num_key_value_heads": 2, "head_dim": 8} | changes
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    gpt2 = {"vocab_size": 40, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32, "n_ctx": 32} | ends
    made = {
        "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**sizes)),
        "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)),
        "gpt_neox": lambda: transformers.GPTNeoXForCausalLM(
            transformers.GPTNeoXConfig(**sizes | {"hidden_size": 32}, **ends)
        ),
        "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**grouped)),
        "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**grouped)),
    }
    module = made[family]().double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4 if parameter.dim() > 1 else 0.2)
    return module


def worst(differences: Iterable[float]) -> float:
    """The largest, NaN if one is NaN."""
    return float(np.max(list(differences)))
