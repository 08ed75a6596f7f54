"""Classes of transformers and datasets that are imported when they are first used.

Their import takes longer than drawing a report, and most code needs them only in annotations and `isinstance`. A class
here is a proxy for one of them, with its instances, attributes and constructor. To derive from one, import it from its
library.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import transformers as transformers
    from accelerate import Accelerator as Accelerator
    from datasets import ClassLabel as ClassLabel
    from datasets import Dataset as Dataset
    from datasets import DatasetDict as DatasetDict
    from datasets import IterableDataset as IterableDataset
    from datasets import IterableDatasetDict as IterableDatasetDict
    from transformers import AlbertConfig as AlbertConfig
    from transformers import AlbertForMaskedLM as AlbertForMaskedLM
    from transformers import AlbertForTokenClassification as AlbertForTokenClassification
    from transformers import AttentionInterface as AttentionInterface
    from transformers import AttentionMaskInterface as AttentionMaskInterface
    from transformers import AutoConfig as AutoConfig
    from transformers import AutoModel as AutoModel
    from transformers import AutoModelForCausalLM as AutoModelForCausalLM
    from transformers import AutoTokenizer as AutoTokenizer
    from transformers import BertConfig as BertConfig
    from transformers import BertForMaskedLM as BertForMaskedLM
    from transformers import BertLMHeadModel as BertLMHeadModel
    from transformers import BertModel as BertModel
    from transformers import Cache as Cache
    from transformers import ElectraConfig as ElectraConfig
    from transformers import ElectraForMaskedLM as ElectraForMaskedLM
    from transformers import ElectraForPreTraining as ElectraForPreTraining
    from transformers import EncoderDecoderConfig as EncoderDecoderConfig
    from transformers import EncoderDecoderModel as EncoderDecoderModel
    from transformers import GenerationConfig as GenerationConfig
    from transformers import GenerationMixin as GenerationMixin
    from transformers import GPT2Config as GPT2Config
    from transformers import GPT2LMHeadModel as GPT2LMHeadModel
    from transformers import LlamaTokenizer as LlamaTokenizer
    from transformers import LogitsProcessorList as LogitsProcessorList
    from transformers import LongformerConfig as LongformerConfig
    from transformers import LongformerForMaskedLM as LongformerForMaskedLM
    from transformers import LongformerForTokenClassification as LongformerForTokenClassification
    from transformers import PreTrainedConfig as PreTrainedConfig
    from transformers import PreTrainedModel as PreTrainedModel
    from transformers import PreTrainedTokenizer as PreTrainedTokenizer
    from transformers import PreTrainedTokenizerBase as PreTrainedTokenizerBase
    from transformers import PreTrainedTokenizerFast as PreTrainedTokenizerFast
    from transformers import T5Config as T5Config
    from transformers import T5ForConditionalGeneration as T5ForConditionalGeneration
    from transformers import TorchAoConfig as TorchAoConfig
    from transformers.modeling_outputs import BaseModelOutput as BaseModelOutput
    from transformers.modeling_outputs import (
        BaseModelOutputWithPoolingAndCrossAttentions as BaseModelOutputWithPoolingAndCrossAttentions,
    )
    from transformers.modeling_outputs import Seq2SeqModelOutput as Seq2SeqModelOutput
    from transformers.models.led.modeling_led import LEDEncoder as LEDEncoder
    from transformers.models.longformer.modeling_longformer import LongformerModel as LongformerModel
    from transformers.pytorch_utils import Conv1D as Conv1D

_AUTO = ("AutoConfig", "AutoModel", "AutoModelForCausalLM")
_HOMES = {
    "Accelerator": "accelerate",
    **dict.fromkeys(_AUTO, "infoflow.models.modeling_own"),  # which registers infoflow's own models with them
    **dict.fromkeys(("ClassLabel", "Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict"), "datasets"),
    **dict.fromkeys(
        ("BaseModelOutput", "BaseModelOutputWithPoolingAndCrossAttentions", "Seq2SeqModelOutput"),
        "transformers.modeling_outputs",
    ),
    "Conv1D": "transformers.pytorch_utils",
    "LEDEncoder": "transformers.models.led.modeling_led",
    "LongformerModel": "transformers.models.longformer.modeling_longformer",
}
"""Modules of the classes that `transformers` itself does not export."""


class _StandIn(type):
    """A proxy of a class, which is imported when the proxy is used."""

    @property
    def real(cls) -> Any:
        return getattr(import_module(cls.__module__), cls.__name__)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(getattr(subclass, "real", subclass), cls.real)

    def __call__(cls, *arguments: Any, **settings: Any) -> Any:
        return cls.real(*arguments, **settings)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.real, name)


class _LaterModule:
    """A module that is imported when one of its attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)


def stand_in(name: str, module: str) -> Any:
    """A proxy for the class called `name` in `module`."""
    return _StandIn(name, (), {"__module__": module})


def __getattr__(name: str) -> Any:
    if name == "transformers":
        return globals().setdefault(name, _LaterModule(name))
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, stand_in(name, _HOMES.get(name, "transformers")))
