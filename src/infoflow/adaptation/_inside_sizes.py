"""How much of the data the inside view looks at."""

from dataclasses import dataclass

from infoflow.foundation import Count, check_settings


@dataclass(frozen=True, kw_only=True, slots=True)
class InsideSizes:
    """How much is read for each measure; more narrows intervals and costs time."""

    words: Count = 3000  # text tokens for distances of spaces and information about words
    items: Count = 600  # of these for RSA
    label_texts: Count = 400  # of each part for the probe of the label
    scored: Count = 150  # test examples scored with layers taken back, or heads taken away
    written: Count = 24  # of these where an example is a text to write
    swap_points: Count = 3  # numbers of blocks taken back, between none and all
    attention_texts: Count = 200  # test examples whose attention is looked at
    costs_on: Count = 128  # test examples for what each head is worth, dev examples for their order
    pretraining_sentences: Count = 64
    random_orders: Count = 1  # of heads, for each tuned model
    probe_sentences: Count = 200

    def __post_init__(self) -> None:
        check_settings(self, "inside")
