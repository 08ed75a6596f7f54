"""How much data the inside view uses."""

from dataclasses import dataclass

from infoflow.foundation import Count, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class InsideSizes:
    """Amount of data for each measure; more data narrows intervals and takes longer."""

    words: Count = 3000  # text tokens for distances of spaces and information about words
    items: Count = 600  # of these for RSA
    label_texts: Count = 400  # of each part for the probe of the label
    scored: Count = 150  # test examples scored with layers reset or heads ablated
    written: Count = 24  # of these if an example is a text to write
    swap_points: Count = 3  # numbers of reset blocks, between none and all
    attention_texts: Count = 200  # test examples for attention
    costs_on: Count = 128  # test examples for each head's cost, dev examples for the order of heads
    pretraining_sentences: Count = 64
    random_orders: Count = 1  # of heads, for each tuned model
    probe_sentences: Count = 200

    def __post_init__(self) -> None:
        check_settings(self, "inside")
