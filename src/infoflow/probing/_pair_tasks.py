"""Tasks on two spans of a sentence: whether an arc joins them, its label, coreference."""

from collections import Counter
from collections.abc import Iterator

from infoflow.heads import read_mentions

from ._questions import AskedSentence, Kind, ProbeQuestion, Span, always
from ._span_tasks import ENTITY
from ._subtrees import universal


def _arc(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Each word with its head, and with one other word of the sentence, drawn once per seed."""
    heads = sentence.heads()
    for word, head in enumerate(heads):
        others = [other for other in range(len(heads)) if other not in (word, head)]
        if head == -1 or not others:
            left_out["roots" if head == -1 else "words without another word that is not their head"] += 1
            continue
        other = int(sentence.draw("arc", word).choice(others))
        yield ProbeQuestion(first=(word, word + 1), second=(head, head + 1), label="arc")
        yield ProbeQuestion(first=(word, word + 1), second=(other, other + 1), label="none")


def _arc_label(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    for word, (head, relation) in enumerate(zip(sentence.heads(), sentence.tags("deprel"), strict=True)):
        if head == -1:
            left_out["roots"] += 1
        else:
            yield ProbeQuestion(first=(word, word + 1), second=(head, head + 1), label=universal(relation))


def _coreference(sentence: AskedSentence, left_out: Counter[str]) -> Iterator[ProbeQuestion]:
    """Each pair of mentions of one entity, and for each the later mention with an earlier mention of another entity."""
    mentions = sorted(read_mentions(sentence.tags(ENTITY)), key=lambda m: (m.start, m.end))
    spans: list[Span] = [(m.start, m.end + 1) for m in mentions]
    for later in range(len(mentions)):
        before = [earlier for earlier in range(later) if spans[earlier][1] <= spans[later][0]]
        same = [earlier for earlier in before if mentions[earlier].entity == mentions[later].entity]
        other = [earlier for earlier in before if mentions[earlier].entity != mentions[later].entity]
        drawn = sentence.draw("coreference", later).permutation(len(other))[: len(same)]
        left_out["coreferent pairs without one of another entity"] += len(same) - len(drawn)
        for earlier in same:
            yield ProbeQuestion(first=spans[later], second=spans[earlier], label="coreferent")
        for place in sorted(drawn.tolist()):
            yield ProbeQuestion(first=spans[later], second=spans[other[place]], label="different")


PAIR_TASKS: dict[str, Kind] = {
    "arc": Kind(
        unit="pair",
        about="whether the second word is the head of the first, beside one other word drawn for each",
        needs=("head",),
        begin=always(_arc),
    ),
    "arc-label": Kind(
        unit="pair",
        about="the relation between a word and its head",
        needs=("head", "deprel"),
        begin=always(_arc_label),
    ),
    "coreference": Kind(
        unit="pair",
        about="whether two mentions of a sentence are of one entity, beside as many pairs that are not",
        needs=(ENTITY,),
        begin=always(_coreference),
    ),
}
