"""What a passage's vector depends on beside the passage, in sixteen hex digits."""

import hashlib
import json
from typing import Any

from infoflow.corpus import Vocabulary, tokenizer_digest

from ._retriever import Tower

_SETTINGS = ("hidden_act", "layer_norm_eps", "num_attention_heads")  # of an encoder, beyond what its weights show


def tower_digest(tower: Tower, tokenizer: Any) -> str:
    """Sixteen hex digits of all that makes a vector of a text: weights, settings, pooling and tokenizer.

    Args:
        tower: The encoder of passages.
        tokenizer: That it is given tokens by, with its special ones.
    """
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    settings = [getattr(tower.encoder.config, name) for name in _SETTINGS]
    special = [vocabulary.start, vocabulary.end, vocabulary.pad, tokenizer.unk_token_id, vocabulary.special]
    about = [tower.pooling, settings, tokenizer_digest(tokenizer), special]
    hashed = hashlib.sha256(json.dumps(about, default=str).encode())
    for name, tensor in tower.state_dict().items():
        hashed.update(name.encode())
        hashed.update(tensor.detach().float().cpu().contiguous().numpy().data)
    return hashed.hexdigest()[:16]
