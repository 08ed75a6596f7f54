"""Pretraining objectives, one per file: how each corrupts inputs, what it predicts, and its loss."""

from infoflow.corpus import Vocabulary

from ._batch import NO_TARGET, SENTENCE_FIELDS, UNSUPERVISED, Field, collate, pad_arrays, stacks
from ._batch import Batch as Batch
from ._batch import Corrupted as Corrupted
from ._batch import Example as Example
from ._batch import LossTerm as LossTerm
from ._batch import Noise as Noise
from ._batch import Shown as Shown
from ._batch import supervised_cross_entropy as supervised_cross_entropy
from ._causal_lm import BiLM as BiLM
from ._causal_lm import CausalLM as CausalLM
from ._causal_lm import PrefixDecoder as PrefixDecoder
from ._causal_lm import prefix_mask
from ._encoder_decoder import Bart as Bart
from ._encoder_decoder import Mass as Mass
from ._encoder_decoder import Translation as Translation
from ._masked_lm import AbstractPairObjective
from ._masked_lm import MaskedLM as MaskedLM
from ._masked_lm import NextSentence as NextSentence
from ._masked_lm import SentenceOrder as SentenceOrder
from ._masked_lm import SpanBert as SpanBert
from ._multitask import MultiTask as MultiTask
from ._multitask import mixture_rates
from ._objective import AbstractObjective as AbstractObjective
from ._objective import Answers as Answers
from ._objective import Family, Metric, Reads, accuracy, area_under_curve, drop_tokens
from ._registry import OBJECTIVES, further_objectives, load_objectives, metrics_of, takes_token_dropout
from ._registry import make_objective as make_objective
from ._registry import show_text as show_text
from ._skip_gram import SkipGram as SkipGram
from ._skip_gram import keep_probability
from ._text_to_text import DenoiseFull as DenoiseFull
from ._text_to_text import DenoiseMask as DenoiseMask
from ._text_to_text import Deshuffling as Deshuffling
from ._text_to_text import DropTokens as DropTokens
from ._text_to_text import PrefixLM as PrefixLM
from ._text_to_text import ReplaceSpans as ReplaceSpans
from ._text_to_text import Seq2SeqLM as Seq2SeqLM
from ._text_to_text import SpanCorruption as SpanCorruption
from ._text_to_text import span_mask
from ._two_models import Distillation as Distillation
from ._two_models import Electra as Electra
