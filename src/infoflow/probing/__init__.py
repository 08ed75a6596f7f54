"""Probes: what can be read from each layer, and how hard it is to read."""

from ._attention_probe import AttentionProbe as AttentionProbe
from ._bert_score import BertBaseline as BertBaseline
from ._bert_score import BertScores as BertScores
from ._bert_score import bert_baseline as bert_baseline
from ._bert_score import bert_score as bert_score
from ._bert_score_table import BERT_SCORE as BERT_SCORE
from ._bert_score_table import pearson_by_layer as pearson_by_layer
from ._examples import Examples as Examples
from ._examples import Part as Part
from ._examples import ProbeTask as ProbeTask
from ._examples import Unit as Unit
from ._fact_files import read_facts as read_facts
from ._facts import Fact as Fact
from ._facts import Facts as Facts
from ._facts import Prompt as Prompt
from ._fill_in import FILL_IN as FILL_IN
from ._fill_in import FillIn as FillIn
from ._fill_in import FillInOptions as FillInOptions
from ._fill_in import fill_in as fill_in
from ._greedy_match import greedy_match as greedy_match
from ._object_tokens import common_objects as common_objects
from ._prompt_ensembles import best_prompt as best_prompt
from ._prompt_ensembles import optimised_weights as optimised_weights
