"""Which kernels mixed precision may use."""

import pytest
import torch
from transformers import BertConfig, BertModel

from infoflow.training._precision import mixed_precision


@pytest.fixture(scope="module")
def module() -> BertModel:
    return BertModel(
        BertConfig(hidden_size=2, num_attention_heads=1, num_hidden_layers=1, intermediate_size=2, vocab_size=4)
    )


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
def test_on_a_gpu_attention_is_not_planned_anew_for_each_shape(module):
    """cuDNN's attention comes first in half precision, and takes 10 ms for every new shape of a batch."""
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with mixed_precision(module, "bf16", torch.device("cuda")):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert torch.backends.cuda.flash_sdp_enabled()
        assert torch.backends.cuda.mem_efficient_sdp_enabled()  # takes masks
        assert torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_full_precision_leaves_attention_alone(module):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with mixed_precision(module, "fp32", torch.device("cuda")):
        assert torch.backends.cuda.cudnn_sdp_enabled() == before
