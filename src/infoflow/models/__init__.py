"""Any Hugging Face model as stacks, layers and heads; the tap on its forward pass; decoding and task scores."""

from ._adapter import is_adapter_folder
from ._anatomy import COMPONENTS, Attention, ParameterGroup, ParameterSlice, Projection, Stack, keys_stack
from ._anatomy import Anatomy as Anatomy
from ._attention_call import AttentionCall, Site
from ._bands import DILATION, FIRST_IS_GLOBAL, compute_densely
from ._card import model_card
from ._discovery import discover
from ._first_pass import tiny_inputs
from ._hub import at_revision, unreadable
from ._load import check_loading, load_tokenizer_of
from ._load import load_model as load_model
from ._losses import (
    IGNORED,
    SequenceLosses,
    accepts,
    concatenate_losses,
    left_padding,
    shift_right,
    start_token_id,
    without_cache,
)
from ._losses import decoder_inputs as decoder_inputs
from ._losses import forward_logits as forward_logits
from ._losses import model_inputs as model_inputs
from ._losses import pad_rows as pad_rows
from ._losses import sequence_losses as sequence_losses
from ._model import Model as Model
from ._model import Task, feed_forward_outputs, module_outputs
from ._modules import (
    FastLinear,
    argmax,
    argmin,
    evaluating,
    fast_linear,
    learning_parameters,
    reading,
    states_of,
    states_read,
    with_states,
    without_remarks,
)
from ._own_models import (
    AbstractOwnModel,
    CausalBertConfig,
    Elmo,
    ElmoConfig,
    PlainBertConfig,
    PlainBertForMaskedLM,
    PlainBertLMHeadModel,
    StaticConfig,
    StaticVectors,
)
from ._placed import is_placed, on_several_devices, place_like, quantisation, require_whole, unusual_weights, weight_of
from ._pruned import check_free, is_pruned_folder, kept_heads, remove_heads, save_pruned
from ._read import empty_model, existing
from ._rerun import (
    BlockOutputs,
    BlockRerun,
    first_block,
    recorded_blocks,
    rerun_blocks,
    rerun_others,
    skipped_blocks,
    without_edges,
    without_token,
)
from ._saved import save_model, save_tokenizers, save_weights
from ._tap import HeadCall, Tap, open_gates, tap
from ._text_scores import (
    BleuStatistics,
    Numbers,
    bleu_by_block,
    bleu_statistics,
    bleu_tokenizer,
    contains_answer,
    exact_match,
    memorisation_ratio,
    normalise_answer,
    rouge,
    stored_bits,
    token_f1,
)
from ._tokenizers import TARGET_FOLDER, find_tokenizers, front_token, leading
from ._translate import Readout, as_model_writes, end_token, readout, translate, write_texts
