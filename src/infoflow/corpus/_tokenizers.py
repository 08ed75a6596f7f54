"""Training and loading tokenizers."""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from infoflow.foundation import UserError

from ._tokenizer_files import read_tokenizer
from ._vocabulary import sentinel_names

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Special tokens of a trained tokenizer; their ids are 0..4, in this order."""
PAD, UNK, CLS, SEP, MASK = SPECIAL_TOKENS

_PIECE = r"▁?\w+|▁?[^\w▁]"  # a word or one other sign, each with the space before it


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    lowercase: bool = True,
    min_frequency: int = 2,
    max_length: int = 512,
    sentinels: int = 0,
) -> PreTrainedTokenizerFast:
    """Learn byte-pair encoding (BPE) from sentences; the same texts always give the same tokenizer.

    Text is normalised (NFKC, and optionally lower-cased), split at white space and punctuation, and encoded as `[CLS] x
    [SEP]`. `▁` is the space before a piece. `vocab_size` includes the five special tokens, and the `sentinels`
    (<extra_id_0>, ...) of text-to-text objectives: the last ids, in descending order, as in T5.

    Raises:
        UserError: `vocab_size` is too small for the characters of the texts.
    """
    learned = vocab_size - sentinels
    if learned <= len(SPECIAL_TOKENS):
        special = f"{len(SPECIAL_TOKENS)} special tokens" + (f" and {sentinels} sentinels" if sentinels else "")
        raise UserError(f"vocab_size must exceed the {special}. Got {vocab_size}.")
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    steps: list[normalizers.Normalizer] = [
        normalizers.NFKC(),
        normalizers.Replace(Regex(r"\s+"), " "),
        normalizers.Strip(),
    ]
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Lowercase()] if lowercase else steps)
    # Marking continuations (##) instead would number those pieces in the order of a randomly seeded hash map, so that
    # two trainings differ (tokenizers 0.23).
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(split=False), pre_tokenizers.Split(Regex(_PIECE), behavior="isolated")]
    )
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(
        vocab_size=learned,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if tokenizer.get_vocab_size() > learned:
        raise UserError(
            f"vocab_size must be at least {tokenizer.get_vocab_size() + sentinels}, the number of characters in these "
            f"texts. Got {vocab_size}."
        )
    marks = sentinel_names(sentinels)[::-1]
    tokenizer.add_special_tokens(marks)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS} $A {SEP}",
        pair=f"{CLS} $A {SEP} $B:1 {SEP}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (CLS, SEP)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=max_length,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        **({"extra_special_tokens": marks} if marks else {}),
    )


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer in a folder, or of that name on the model hub.

    Raises:
        UserError: There is none.
    """
    try:
        return read_tokenizer(source)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"No tokenizer could be loaded from {source}: {reason}\n"
            "Name a folder written by save_pretrained, or a model on the hub (and check the network)."
        ) from error
