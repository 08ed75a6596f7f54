"""When bfloat16 helps."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from ._attention import float32_attention
from ._config import Precision

# Measured with avx512_bf16, attention in float32, one thread: at width 64 causal LM 1.7, masked LM 1.3 and translation
# 1.1 times as fast as float32; at 128 2.1, 1.9 and 1.5; at 256 2.4, 2.6 and 1.9 times.
_SMALLEST_CPU_WIDTH = 64
# Without cuDNN's: in half precision recent GPUs take it first, and it is planned anew for each shape of a batch. On an
# H100 an update of 4,096 tokens at width 512 took 500 ms with it.
_GPU_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def resolve_precision(precision: Precision, device: torch.device, width: int) -> Precision:
    """`fp32` or `bf16`, where `auto` is decided by device and width."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    if device.type == "cpu" and width >= _SMALLEST_CPU_WIDTH and _cpu_has_bf16():
        return "bf16"
    return "fp32"


@contextmanager
def mixed_precision(module: PreTrainedModel, precision: Precision, device: torch.device) -> Iterator[None]:
    """Under `bf16`, runs matrix products in bfloat16.

    Weights, optimiser state and cross-entropy stay in float32, and on a CPU attention too.
    """
    if precision != "bf16":
        yield
        return
    # Weights are cast once per matrix product: a cache would hold on to weights from before the update.
    with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
        if device.type != "cpu":
            with sdpa_kernel(_GPU_ATTENTION):
                yield
            return
        with float32_attention(module):
            yield


def _cpu_has_bf16() -> bool:
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
