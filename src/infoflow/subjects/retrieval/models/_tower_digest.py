"""Everything that determines a passage's vector apart from the passage, in sixteen hex digits."""

import hashlib
import json
from typing import Any

from infoflow.corpus import Vocabulary, tokenizer_digest

from ._retriever import Tower

_SETTINGS = ("hidden_act", "layer_norm_eps", "num_attention_heads")  # of an encoder, not visible in its weights


def tower_digest(tower: Tower, tokenizer: Any) -> str:
    """Sixteen hex digits of everything that maps a text to a vector: weights, settings, pooling and tokenizer.

    Args:
        tower: The passage encoder.
        tokenizer: Its tokenizer, with special tokens.
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
