"""One file per pretraining objective: input corruption, prediction targets, loss."""

from infoflow.corpus import Vocabulary

from ._answers import Answers as Answers
from ._answers import accuracy, area_under_curve
from ._bart import Bart as Bart
from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Field, collate, pad_arrays
from ._batch import Batch as Batch
from ._batch import Corrupted as Corrupted
from ._bilm import BiLM as BiLM
from ._causal_lm import CausalLM as CausalLM
from ._distillation import Distillation as Distillation
from ._electra import Electra as Electra
from ._example import Example as Example
from ._loss import LossTerm as LossTerm
from ._loss import supervised_cross_entropy
from ._masked_lm import MaskedLM as MaskedLM
from ._mass import Mass as Mass
from ._metric import Metric
from ._noise import Noise as Noise
from ._numbers import Numbers
from ._objective import AbstractObjective as AbstractObjective
from ._objective import Family, Reads
from ._pair_objectives import AbstractPairObjective as AbstractPairObjective
from ._pair_objectives import NextSentence as NextSentence
from ._pair_objectives import SentenceOrder as SentenceOrder
from ._prefix_decoder import PrefixDecoder as PrefixDecoder
from ._prefix_decoder import prefix_mask
from ._registry import OBJECTIVES, further_objectives, takes_token_dropout
from ._registry import make_objective as make_objective
from ._skip_gram import SkipGram as SkipGram
from ._skip_gram import keep_probability
from ._spanbert import SpanBert as SpanBert
from ._text_to_text import DenoiseFull as DenoiseFull
from ._text_to_text import DenoiseMask as DenoiseMask
from ._text_to_text import Deshuffling as Deshuffling
from ._text_to_text import DropTokens as DropTokens
from ._text_to_text import PrefixLM as PrefixLM
from ._text_to_text import ReplaceSpans as ReplaceSpans
from ._text_to_text import Seq2SeqLM as Seq2SeqLM
from ._text_to_text import SpanCorruption as SpanCorruption
from ._token_dropout import drop_tokens
from ._translation import Translation as Translation
from ._written_answers import contains_answer, exact_match, memorisation_ratio, normalise_answer, stored_bits, token_f1
