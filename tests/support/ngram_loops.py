"""n-gram models from dictionaries, for the tests."""

from collections import Counter

import numpy as np


class Loops:
    """Q_n as it is written, from lists of sentences."""

    def __init__(self, sentences, size, order, start=None, counted=None):
        self.size = size
        self.counts = [Counter() for _ in range(order)]
        self.totals = [Counter() for _ in range(order)]
        self.following = [{} for _ in range(order)]
        for number, sentence in enumerate(sentences):
            read = ([] if start is None else [start]) + list(sentence)
            for place, token in enumerate(sentence):
                if counted is not None and not counted[number][place]:
                    continue
                at = place + len(read) - len(sentence)
                for n in range(1, order + 1):
                    if at - (n - 1) < 0:
                        continue
                    history = tuple(read[at - (n - 1) : at])
                    self.counts[n - 1][history, token] += 1
                    self.totals[n - 1][history] += 1
                    self.following[n - 1].setdefault(history, set()).add(token)

    def q(self, token, history):
        """`history`: the last token last."""
        n = len(history)
        if n == 0:
            return (self.counts[0][(), token] + 0.5) / (self.totals[0][()] + self.size / 2)
        shorter = self.q(token, history[1:])
        total = self.totals[n][history]
        if not total:
            return shorter
        kept = max(self.counts[n][history, token] - 0.75, 0) / total
        return kept + 0.75 * len(self.following[n][history]) / total * shorter

    def distribution(self, history):
        return np.array([self.q(token, history) for token in range(self.size)])
