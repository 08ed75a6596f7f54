"""One file per pretraining objective: how the input is corrupted, what is predicted, the loss."""

from infoflow.corpus import Vocabulary as Vocabulary

from ._batch import SENTENCE_FIELDS as SENTENCE_FIELDS
from ._batch import UNSUPERVISED as UNSUPERVISED
from ._batch import Batch as Batch
from ._batch import Corrupted as Corrupted
from ._batch import Field as Field
from ._batch import collate as collate
from ._batch import pad_arrays as pad_arrays
from ._causal_lm import CausalLM as CausalLM
from ._example import Example as Example
from ._loss import LossTerm as LossTerm
from ._loss import supervised_cross_entropy as supervised_cross_entropy
from ._masked_lm import MaskedLM as MaskedLM
from ._metric import Metric as Metric
from ._noise import Noise as Noise
from ._objective import AbstractObjective as AbstractObjective
from ._objective import Family as Family
from ._registry import OBJECTIVES as OBJECTIVES
from ._registry import make_objective as make_objective
from ._token_dropout import drop_tokens as drop_tokens
from ._translation import Translation as Translation
