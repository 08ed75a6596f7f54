"""Any Hugging Face model as stacks, layers and heads; the tap on its forward pass; decoding and task scores."""

from ._adapter_folder import is_adapter_folder
from ._anatomy import COMPONENTS, Attention, ParameterGroup, Stack, keys_stack
from ._anatomy import Anatomy as Anatomy
from ._attention import AttentionCall, Site
from ._bands import FIRST_IS_GLOBAL, compute_densely
from ._bleu import BleuStatistics, bleu, bleu_by_block, bleu_statistics, bleu_tokenizer
from ._block_outputs import BlockOutputs, first_block, recorded_blocks, skipped_blocks
from ._block_rerun import BlockRerun, rerun_blocks, rerun_others, without_edges, without_token
from ._causal_bert import CausalBertConfig
from ._discovery import discover
from ._elmo import Elmo, ElmoConfig
from ._evaluating import evaluating
from ._fast_linear import FastLinear, fast_linear
from ._feed_forward import feed_forward_outputs
from ._first_pass import tiny_inputs
from ._head_removal import kept_heads, remove_heads
from ._hub_name import at_revision
from ._inputs import accepts, left_padding, without_cache
from ._inputs import model_inputs as model_inputs
from ._inputs import pad_rows as pad_rows
from ._learning import learning_parameters
from ._load import check_loading, quiet_loading
from ._load import load_model as load_model
from ._losses import IGNORED, SequenceLosses, concatenate_losses, sequence_losses, shift_right, start_token_id
from ._losses import decoder_inputs as decoder_inputs
from ._losses import forward_logits as forward_logits
from ._model import Model as Model
from ._model import Task
from ._module_outputs import module_outputs
from ._own import AbstractOwnModel
from ._plain_bert import PlainBertConfig, PlainBertForMaskedLM, PlainBertLMHeadModel
from ._pruned_folder import check_free, is_pruned_folder
from ._pruned_folder import save_pruned as save_pruned
from ._readout import Readout, readout
from ._rouge import rouge
from ._slices import ParameterSlice as ParameterSlice
from ._slices import Projection
from ._static import StaticConfig, StaticVectors
from ._tap import HeadCall, Tap, tap
from ._tokenizers import TARGET_FOLDER
from ._translate import as_model_writes, translate, without_remarks, write_texts
from ._unreadable import unreadable
