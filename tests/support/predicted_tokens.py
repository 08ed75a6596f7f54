"""What a model predicts, one sentence at a time: the slow way that tests of losses compare with."""

import numpy as np
import torch

from infoflow.flow import Reader
from infoflow.models import start_token_id

OBJECTIVES = ["causal-lm", "masked-lm", "translation"]


def sentence_by_sentence(model, corpus):
    """Of each predicted token: log-probabilities, token, place, tokens before it, the one after, sentence id."""
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq")
    found = []
    for row in range(len(corpus)):
        padded = reader.padded(np.array([row]))
        if model.task == "masked-lm":
            padded = reader.corrupted_batch(padded, "head-loss-noise", 0)
        (source, *target) = padded.streams.values()
        inputs = {"input_ids": source.input_ids}
        read = target[0] if target else source
        if target:
            inputs["decoder_input_ids"] = read.input_ids
        with torch.no_grad():
            logs = torch.log_softmax(model.module(**inputs).logits[0].double(), -1).numpy()
        ids, labels = read.input_ids[0].tolist(), read.labels[0].tolist()
        hidden = model.task == "masked-lm"
        for step, label in enumerate(labels):
            if label == -100:
                continue
            end = step if hidden else step + 1
            before = ids[:end][::-1]
            after = ids[step + 1] if step + 1 < len(ids) else -1
            if hidden:
                before = [-1 if labels[end - 1] != -100 else before[0]] if end else [-1]
                after = after if step + 1 < len(ids) and labels[step + 1] == -100 else -1
            # Places are counted among ordinary tokens: one special token stands before them all.
            found.append((logs[step], label, step if hidden else step + 1, before, after, corpus.content_ids[row]))
    return found


def sequences_of(model, corpus):
    """What n-grams are counted in, and which tokens count."""
    if model.task == "seq2seq":
        texts = [model.target_tokenizer(sentence.translation)["input_ids"] for sentence in corpus]
    else:
        texts = [model.tokenizer(sentence.text)["input_ids"] for sentence in corpus]
    own_start = model.task != "seq2seq" or texts[0][0] == start_token_id(model)
    assert own_start  # of these tokenizers
    last = [len(text) - 1 if model.task == "masked-lm" else len(text) for text in texts]
    return texts, [[0 < place < end for place in range(len(text))] for text, end in zip(texts, last, strict=True)]
