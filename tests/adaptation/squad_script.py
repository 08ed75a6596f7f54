"""The published evaluation script of SQuAD, which two test files compare with."""

import re
import string
import unicodedata
from collections import Counter


def normalise(s: str) -> str:
    """The published evaluation script of SQuAD, step by step, with the punctuation of MLQA's."""
    s = s.lower()
    s = "".join(ch for ch in s if ch not in set(string.punctuation) and not unicodedata.category(ch).startswith("P"))
    s = re.sub(re.compile(r"\b(a|an|the)\b", re.UNICODE), " ", s)
    return " ".join(s.split())


def _f1(gold: str, said: str) -> float:
    gold_tokens, said_tokens = normalise(gold).split(), normalise(said).split()
    num_same = sum((Counter(gold_tokens) & Counter(said_tokens)).values())
    if len(gold_tokens) == 0 or len(said_tokens) == 0:
        return int(gold_tokens == said_tokens)
    if num_same == 0:
        return 0
    precision, recall = num_same / len(said_tokens), num_same / len(gold_tokens)
    return 2 * precision * recall / (precision + recall)


def script(said: str, answers: list[str]) -> tuple[float, float]:
    gold = [answer for answer in answers if normalise(answer)] or [""]
    exact = max(int(normalise(a) == normalise(said)) for a in gold)
    return exact, max(_f1(a, said) for a in gold)
