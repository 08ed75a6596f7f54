"""Tasks on made-up texts, and tiny models tuned on them."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, final

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification, BertForTokenClassification

from infoflow.adaptation import AbstractTask, Predictions, Score, TaskData
from infoflow.corpus import Corpus, train_tokenizer
from infoflow.foundation import block_of, stream
from infoflow.models import load_model
from infoflow.objectives import Corrupted, Example, Field, LossTerm, Vocabulary
from infoflow.results import ratio_estimate
from infoflow.training import TrainConfig, TrainingData, train

GOOD, BAD = ("good", "nice", "fine"), ("poor", "sad", "bad")
OTHER = ("the", "a", "cat", "dog", "house", "sees", "old", "red", "big", "runs")


def toy_corpus(num: int, seed: int, name: str = "toy") -> Corpus:
    """Texts whose class is that of the one telling word in them."""
    rng = stream("toy-task", seed)
    texts, labels = [], []
    for _ in range(num):
        label = int(rng.integers(2))
        words = [*rng.choice(OTHER, size=rng.integers(2, 9)), rng.choice((BAD, GOOD)[label])]
        texts.append(" ".join(rng.permutation(words)))
        labels.append(("bad", "good")[label])
    return Corpus.from_sentences(texts, name=name).with_labels(labels)


class Rows:
    def __init__(self, corpus, tokenizer, labels, max_length):
        encoded = corpus.encode(tokenizer, side="text", max_length=max_length)
        self.sentence_ids, self.lengths, self.row = encoded.sentence_ids, encoded.lengths, encoded.row
        self._labels = labels
        self.digest = "toy"

    def example(self, index: int) -> Example:
        text = np.asarray(self.row(index), dtype=np.int64)
        return Example(texts=(text,), labels={"label": self._labels(index, text)})


@final
@dataclass(frozen=True, kw_only=True)
class ToyTask(AbstractTask):
    """Classes of texts, or (of words) whether each token is a telling word."""

    name: ClassVar[str] = "toy-task"
    head: ClassVar[str] = "AutoModelForSequenceClassification"
    term_weights: ClassVar[dict[str, float]] = {"toy": 1.0}
    task: str = "toy"
    labels: tuple[str, ...] = ("bad", "good")
    shape: str = "classification"  # type: ignore[misc]
    telling: tuple[int, ...] = ()

    @property
    def fields(self):  # type: ignore[override]
        return {"input_ids": Field(pad="source"), "labels": Field(pad=-100)}

    def rows(self, corpus, tokenizer, max_length):
        if self.shape == "tagging":
            special = tokenizer.all_special_ids
            return Rows(
                corpus, tokenizer,
                lambda i, text: np.where(np.isin(text, special), -100, np.isin(text, self.telling)).astype(np.int64),
                max_length,
            )  # fmt: skip
        return Rows(corpus, tokenizer, lambda i, _: np.array(self.labels.index(corpus[i].label)), max_length)

    def corrupt(self, example, generator, vocabulary):
        arrays = {"input_ids": example.text, "labels": example.labels["label"]}
        return Corrupted(arrays=arrays, selected=np.zeros(len(example.text), dtype=bool))

    def counts(self, batch):
        return {"toy": len(batch)}

    def loss(self, module, batch, noise, label_smoothing=0.0):
        return {"toy": LossTerm(total=self.example_losses(module, batch).sum(), count=len(batch))}

    def example_losses(self, module, batch):
        logits = module(input_ids=batch.input_ids, attention_mask=batch.real.long()).logits
        if self.shape == "tagging":
            each = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), batch.labels.flatten(), reduction="none", ignore_index=-100
            ).view_as(batch.labels)
            return each.sum(1) / (batch.labels != -100).sum(1)
        return torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none")

    def predict(self, module, rows, corpus, vocabulary, batch_tokens):
        data, said, values = TrainingData(source=rows, vocabulary=vocabulary), [], []
        for index in range(len(corpus)):
            batch = data.batch(self, np.array([index]), ("x",), 0)
            with torch.no_grad():
                shares = module(input_ids=batch.input_ids).logits[0].softmax(-1)
            said.append(self.labels[int(shares.argmax())])
            values.append(float(shares.max()))
        wanted = tuple(sentence.label for sentence in corpus)
        return Predictions(said=tuple(said), wanted=wanted, values=np.array(values))

    def scores(self, predictions, corpus, train):
        right = np.array(predictions.said) == np.array(predictions.wanted)
        blocks = block_of(corpus.content_ids)
        hits = np.bincount(blocks, weights=right, minlength=64)
        count = np.bincount(blocks, minlength=64).astype(float)
        return [Score(metric="accuracy", row=ratio_estimate(hits, count, 0.5, scale="share"))]


@cache
def toy_data() -> TaskData:
    parts = {
        name: toy_corpus(num, seed, name) for seed, (name, num) in enumerate((("train", 60), ("dev", 30), ("test", 40)))
    }
    return TaskData(name="toy", shape="classification", labels=("bad", "good"), **parts)


@cache
def toy_tokenizer():
    return train_tokenizer((sentence.text for sentence in toy_corpus(200, 9)), vocab_size=80)


def toy_config(**changes) -> BertConfig:
    settings = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    tokenizer = toy_tokenizer()
    return BertConfig(
        vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, max_position_embeddings=32, num_labels=2,
        initializer_range=0.2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **settings | changes,
    )  # fmt: skip


@cache
def toy_before(seed: int = 0):
    """A masked language model that nobody trained."""
    torch.manual_seed(seed)
    return load_model(BertForMaskedLM(toy_config()), tokenizer=toy_tokenizer())


def toy_module(before, seed: int, tags: bool = False):
    """Its body below a fresh head."""
    torch.manual_seed(seed)
    module = (BertForTokenClassification if tags else BertForSequenceClassification)(toy_config())
    module.base_model.load_state_dict(before.module.base_model.state_dict(), strict=False)
    return module


def toy_training(task: ToyTask) -> TrainingData:
    tokenizer = toy_tokenizer()
    rows = task.rows(toy_data().train, tokenizer, 32)
    return TrainingData(source=rows, vocabulary=Vocabulary.from_tokenizer(tokenizer))


def tune(module, task, folder: Path, updates: int = 12, hooks=(), **changes):
    """The module after some updates, as a model to measure."""
    learn(module, task, folder, updates, hooks, **changes)
    return load_model(module, tokenizer=toy_tokenizer())


def learn(module, task, folder: Path, updates: int = 12, hooks=(), **changes) -> None:
    config = TrainConfig(**{
        "updates": updates, "batch_tokens": 128, "learning_rate": 5e-3, "save_every": 0, "device": "cpu",
        "precision": "fp32", **changes,
    })  # fmt: skip
    train(task, config, toy_training(task), module, folder, hooks=hooks)
