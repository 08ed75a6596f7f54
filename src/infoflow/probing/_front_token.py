"""The token before a text, which lets a causal LM predict the text's first token."""

from transformers import PreTrainedTokenizerBase


def leading(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The special tokens that a tokenizer puts before a text."""
    bare, whole = tokenizer("a", add_special_tokens=False)["input_ids"], tokenizer("a")["input_ids"]
    starts = [place for place in range(len(whole)) if whole[place : place + len(bare)] == bare]
    return whole[: starts[0]] if starts else []


def front_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The token to add if the tokenizer adds none: BOS, else the end-of-text token, else None.

    lm-evaluation-harness does the same.
    """
    found = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    return next((int(token) for token in found if token is not None), None)
