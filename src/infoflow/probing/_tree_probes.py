"""Probes that read a dependency tree off attention maps, word vectors, or distances."""

# K head of the model (all layers), W word, E width of a word vector, F = 2K features of a pair

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

ROOT = -1
_HIDDEN = 256


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeSentence:
    """One sentence and its tree, as the probes read them."""

    maps: Float[Tensor, "head word word"]
    """Attention between words, from row to column."""
    ends: Float[Tensor, "head word 2"]
    """Attention from each word to the first special token (CLS) and to the last one (SEP); 0 where there is none."""
    vectors: Float[Tensor, "word width"]
    """Context-free word vectors."""
    governors: Int[Tensor, " word"]
    """Index of each word's head; −1 for the root."""
    present: Bool[Tensor, " word"]
    """Words that have tokens and whose head has tokens."""

    @property
    def targets(self) -> Int[Tensor, " word"]:
        """Column of the right answer in a probe's logits; the last column is the root."""
        return torch.where(self.governors == ROOT, len(self.governors), self.governors)


class TreeProbe(nn.Module, ABC):
    """Logits (dependent, word + 1): the score of each word as the head of each word; the last column is the root."""

    @abstractmethod
    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        """Scores before impossible answers are removed."""

    def forward(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        scores = self.pairs(sentence)
        num = len(sentence.governors)
        itself = torch.eye(num, num + 1, dtype=torch.bool, device=scores.device)
        absent = torch.cat([~sentence.present, sentence.present.new_zeros(1)])
        return scores.masked_fill(itself | absent, -torch.inf)

    def loss(self, sentence: ProbeSentence) -> Tensor:
        """Cross-entropy, summed over the words."""
        logits = self(sentence)[sentence.present]
        return nn.functional.cross_entropy(logits, sentence.targets[sentence.present], reduction="sum")


class AttentionTree(TreeProbe):
    r"""$p(i \mid j) \propto \exp(\sum_k w_k a^k_{ij} + u_k a^k_{ji})$: two weights for each head.

    The root's score is the mean attention from j to CLS and to SEP, each times a learned weight (the paper does not say
    which attention the authors' two scalars weigh).

    Source: [@clark2019], the authors' code.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(2, num_heads))
        self.root = nn.Parameter(torch.zeros(2))

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        from_head = torch.einsum("k,kij->ji", self.weights[0], sentence.maps)
        from_dependent = torch.einsum("k,kji->ji", self.weights[1], sentence.maps)
        return torch.cat([from_head + from_dependent, _root(sentence, self.root)], dim=1)


class AttentionWordsTree(TreeProbe):
    r"""The same with weights that depend on the two words: $[w; u]_{ij} = P v_i + Q v_j + b$; the root's vector is 0.

    Source: [@clark2019], the authors' code; they take 100-dimensional GloVe vectors.
    """

    def __init__(self, num_heads: int, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, 2 * num_heads, bias=False)
        self.dependent = nn.Linear(width, 2 * num_heads)
        self.root = nn.Parameter(torch.zeros(2))

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        of_head, of_dependent = self.head(sentence.vectors), self.dependent(sentence.vectors)
        num_heads = len(sentence.maps)
        toward, back = sentence.maps.permute(2, 1, 0), sentence.maps.permute(1, 2, 0)  # [j, i]: i to j, j to i
        features = torch.cat([toward, back], dim=2)
        scores = torch.einsum("jif,if->ji", features, of_head) + torch.einsum("jif,jf->ji", features, of_dependent)
        on_cls = (of_dependent[:, num_heads:] * sentence.ends[:, :, 0].T).sum(1, keepdim=True)
        return torch.cat([scores, on_cls + _root(sentence, self.root)], dim=1)


class DistanceWordsTree(TreeProbe):
    """The baseline without attention: word vectors and eight features of the distance, 256 hidden units (tanh).

    Source: [@clark2019], the authors' code. The paper does not name the eight features; ours are `distance_features`.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.head = nn.Linear(width, _HIDDEN, bias=False)
        self.dependent = nn.Linear(width, _HIDDEN)
        self.distance = nn.Linear(8, _HIDDEN, bias=False)
        self.root = nn.Parameter(torch.zeros(_HIDDEN))
        self.out = nn.Linear(_HIDDEN, 1)

    def pairs(self, sentence: ProbeSentence) -> Float[Tensor, "word candidate"]:
        of_head, of_dependent = self.head(sentence.vectors), self.dependent(sentence.vectors)
        place = torch.arange(len(of_head), device=of_head.device)
        distance = self.distance(distance_features(place - place.unsqueeze(1)).to(of_head))
        words = of_dependent.unsqueeze(1) + of_head + distance
        root = (of_dependent + self.root).unsqueeze(1)
        return self.out(torch.tanh(torch.cat([words, root], dim=1))).squeeze(2)


def distance_features(distance: Int[Tensor, "*pair"]) -> Float[Tensor, "*pair 8"]:
    """Features: after the word; exactly 1, −1, 2, −2 away; 3 to 5 away on either side; ln of the distance."""
    d, size = distance, distance.abs()
    flags = [d > 0, d == 1, d == -1, d == 2, d == -2, (d >= 3) & (d <= 5), (d <= -3) & (d >= -5)]
    return torch.stack([*(flag.float() for flag in flags), size.clamp(min=1).float().log()], dim=-1)


def _root(sentence: ProbeSentence, weights: Float[Tensor, " 2"]) -> Float[Tensor, "word 1"]:
    return (sentence.ends.mean(0) @ weights).unsqueeze(1)
