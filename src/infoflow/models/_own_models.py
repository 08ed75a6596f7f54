"""Proxies of infoflow's own models: their base classes take two seconds to import, and few commands need them."""

from typing import TYPE_CHECKING

from infoflow._transformers import stand_in

if TYPE_CHECKING:
    from .modeling_own import AbstractOwnModel as AbstractOwnModel
    from .modeling_own import CausalBertConfig as CausalBertConfig
    from .modeling_own import Elmo as Elmo
    from .modeling_own import ElmoConfig as ElmoConfig
    from .modeling_own import PlainBertConfig as PlainBertConfig
    from .modeling_own import PlainBertForMaskedLM as PlainBertForMaskedLM
    from .modeling_own import PlainBertLMHeadModel as PlainBertLMHeadModel
    from .modeling_own import StaticConfig as StaticConfig
    from .modeling_own import StaticVectors as StaticVectors


def __getattr__(name: str) -> type:
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, stand_in(name, "infoflow.models.modeling_own"))
