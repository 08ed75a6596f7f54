"""Questions about passages, and models small enough to be asked them."""

from collections.abc import Sequence

import torch
from datasets import Dataset
from transformers import BertConfig, BertForQuestionAnswering, PreTrainedTokenizerBase

from infoflow.corpus import Corpus, load_corpus, train_tokenizer
from infoflow.foundation import stream

NAMES = ("Ann", "Bob", "Cleo", "Dan", "Eva", "Finn")
TOWNS = ("Oslo", "Bern", "Rome", "Kyiv", "Lima", "Bonn")


def asked(*rows: tuple[str, str, Sequence[str], Sequence[int]], name: str = "asked") -> Corpus:
    """Passages, questions, answers and where they begin."""
    columns = ("text", "question", "answers", "answer_starts")
    named = [dict(zip(columns, (text, question, list(answers), list(starts)), strict=True))
             for text, question, answers, starts in rows]  # fmt: skip
    own = {f"{column}_column": column for column in columns}
    return load_corpus(Dataset.from_list(named), **own, name=name)


def town_questions(num: int = 40, facts: int = 4, seed: int = 0, impossible: float = 0.0) -> Corpus:
    """Passages such as "Ann lives in Oslo. Bob lives in Rome." and where one of the people lives."""
    rng = stream("towns", seed)
    rows = []
    for _ in range(num):
        people = rng.permutation(NAMES)
        towns = rng.choice(TOWNS, size=facts)
        text = " ".join(f"{who} lives in {town}." for who, town in zip(people, towns, strict=False))
        lost = rng.random() < impossible
        which = int(rng.integers(facts))
        who = people[-1] if lost else people[which]
        start = text.index(f"{who} lives") + len(f"{who} lives in ") if not lost else 0
        rows.append((text, f"Where does {who} live?", [] if lost else [str(towns[which])], [] if lost else [start]))
    return asked(*rows, name="towns")


def own_tokenizer(corpus: Corpus, size: int = 90) -> PreTrainedTokenizerBase:
    """Of infoflow's own kind, with pieces shorter than words."""
    texts = [*corpus.column("text"), *corpus.column("question")]
    return train_tokenizer(texts, vocab_size=size)


def span_model(vocabulary: int, width: int = 32, positions: int = 128, layers: int = 2) -> BertForQuestionAnswering:
    """An encoder with random weights and a head for spans."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=4,
        intermediate_size=2 * width, max_position_embeddings=positions, initializer_range=0.2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForQuestionAnswering(config).eval()
