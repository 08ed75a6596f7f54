"""A text with gaps as token ids: the running text around an answer, with one symbol in its place."""

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

_FILLERS = ("a", "I", "x", "0", "the")


def with_symbols(tokenizer: PreTrainedTokenizerBase, parts: Sequence[str], symbol: int) -> list[int] | None:
    """Token ids of the parts with a symbol between them; None if the text cannot be cut there.

    Each gap is filled with a word, the text is encoded, and the word's tokens are replaced by the symbol. So the space
    before the gap goes with the answer if the tokenizer puts it into the answer's token, whatever the tokenizer does
    around special tokens.
    """
    if not tokenizer.is_fast:
        ids = tokenizer(tokenizer.convert_ids_to_tokens(symbol).join(parts))["input_ids"]
        return ids if ids.count(symbol) == len(parts) - 1 else None
    for filler in _FILLERS:
        encoded = tokenizer(filler.join(parts), return_offsets_mapping=True, return_special_tokens_mask=True)
        ids, special = list(encoded["input_ids"]), encoded["special_tokens_mask"]
        if symbol in ids:
            return None
        tokens = [(at, *span) for at, span in enumerate(encoded["offset_mapping"]) if not special[at]]
        gaps = [_inside(tokens, *gap) for gap in _gaps(parts, len(filler))]
        if all(gaps):
            for gap in reversed(gaps):
                ids[gap[0] : gap[-1] + 1] = [symbol]
            return ids
    return None


def _gaps(parts: Sequence[str], length: int) -> list[tuple[int, int]]:
    """The characters of each filler, with the preceding white space."""
    found, end = [], 0
    for part in parts[:-1]:
        end += len(part)
        found.append((end - len(part) + len(part.rstrip()), end + length))
        end += length
    return found


def _inside(tokens: Sequence[tuple[int, int, int]], begin: int, end: int) -> list[int]:
    """The tokens that cover these characters; none if one of them covers others too."""
    # A prefix that a tokenizer adds to a text (`▁`) may have no characters.
    found = [(at, start, stop) for at, start, stop in tokens if start < end and (stop > begin or begin == 0)]
    return [at for at, _, _ in found] if all(begin <= start and stop <= end for _, start, stop in found) else []
