"""Which GPU a process takes that a launcher started with others."""

import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from infoflow.models import load_model


def device_of(device, folder, monkeypatch):
    """Where a model that is loaded from a folder is moved to."""
    config = BertConfig(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    BertForMaskedLM(config).save_pretrained(folder)
    moved, empty = ["cpu"], torch.empty
    # There is no such device here.
    monkeypatch.setattr(torch, "empty", lambda *size, device=None, **named: empty(*size, **named))
    monkeypatch.setattr(BertForMaskedLM, "to", lambda self, device: moved.append(str(device)) or self)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 40, 1 << 40))
    load_model(folder, device=device)
    return moved[-1]


@pytest.mark.parametrize(
    ("device", "local_rank", "gpus", "expected"),
    [
        ("auto", "2", 4, "cuda:2"),
        ("cuda", "2", 4, "cuda:2"),
        ("cuda:1", "2", 4, "cuda:1"),
        ("auto", "5", 4, "cuda:1"),
        ("auto", "2", 1, "cuda"),  # the launcher shows each process one GPU
        ("auto", None, 4, "cuda:3"),
        ("cpu", "2", 4, "cpu"),
    ],
)
def test_each_process_takes_a_gpu_of_its_own(device, local_rank, gpus, expected, monkeypatch, tmp_path):
    for name, value in {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "node", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert device_of(device, tmp_path, monkeypatch) == expected


def test_one_process_takes_the_current_gpu(monkeypatch, tmp_path):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert device_of("auto", tmp_path, monkeypatch) == "cuda"
