"""The layer below all rooms: errors, display, random streams, error bars, provenance, atomic files."""

from infoflow._allocator import keep_freed_memory
from infoflow._signals import sigterm_interrupts as sigterm_interrupts
from infoflow._signals import stop_signals

from ._arrays import as_tensor, read_only
from ._block_interval import Halves, on_halves
from ._block_interval import block_effects as block_effects
from ._block_interval import block_interval as block_interval
from ._bootstrap import NUM_BLOCKS as NUM_BLOCKS
from ._bootstrap import NUM_REPLICATES as NUM_REPLICATES
from ._bootstrap import Interval, dealt
from ._bootstrap import block_of as block_of
from ._bootstrap import interval as interval
from ._bootstrap import replicate_weights as replicate_weights
from ._bounded import (
    Scale,
    at_least_each_class,
    at_least_fisher,
    bounded_interval,
    bounds_of,
    difference_interval,
    scale_of_difference,
    symmetric_interval,
)
from ._digest import LATER, digest, file_digest, named_fields
from ._display import Display as Display
from ._display import (
    JsonDisplay,
    PlainDisplay,
    Progress,
    SilentDisplay,
    clock,
    current_display,
    in_notebook,
    set_display,
)
from ._display import make_display as make_display
from ._display import use_display as use_display
from ._errors import UserError as UserError
from ._errors import did_you_mean, missing_extra, showable, visible
from ._faults import plain_fault
from ._files import atomic_folder, check_own_folder, check_writable, disk_named, reserve_space, sweep_partial, writable
from ._files import atomic_write as atomic_write
from ._hub import patient_hub
from ._json import json_fault, read_object
from ._launcher import launched, local_rank
from ._limits import (
    Count,
    CountOrNone,
    Device,
    DistinctNames,
    File,
    Inches,
    LearningRate,
    Limits,
    MaxLength,
    Name,
    OwnWord,
    OwnWords,
    Probability,
    Processes,
    RequiredFile,
    Seed,
    Several,
    Share,
    Threads,
    Weight,
    as_written,
    check_settings,
    default_settings,
    example_setting,
    one_of,
    private_settings,
    read_setting,
)
from ._limits import describe_setting as describe_setting
from ._locks import lock_file, locked
from ._memory import available_memory, require_memory
from ._over_seeds import interval_over_seeds as interval_over_seeds
from ._over_seeds import join_halves as join_halves
from ._over_seeds import means_without_each, seed_deviations, shared_part
from ._over_seeds import sentence_df as sentence_df
from ._over_seeds import t_quantile as t_quantile
from ._paths import absolute, command_without_folders, model_name_of, name_of, without_folders
from ._provenance import processor, provenance, public_provenance, version
from ._python_file import run_python_file, told_error, told_in_file
from ._random import hash64, hash64_array
from ._random import stream as stream
from ._scratch import new_scratch_folder, scratch_folder
from ._sealed import SEAL, disagreement, kept, seal, sealed_folder, sweep_stale
from ._showing import shown_by
from ._stopping import StopRequest, request_stop
from ._stopping import stop_request as stop_request
from ._threads import available_cores, thread_budget
from ._threads import set_threads as set_threads
from ._unicode import is_unicode
from ._words import (
    comparable,
    inside_word,
    is_inner,
    is_punctuation,
    is_unspaced,
    running_word_spans,
    running_words,
    spacing_of,
    without_punctuation,
    words_and_signs,
    words_of,
    writes_no_spaces,
)
