"""The lowest package, with errors, display, random streams, error bars, provenance and atomic files."""

from infoflow._process import keep_freed_memory, stop_signals
from infoflow._process import sigterm_interrupts as sigterm_interrupts

from ._bootstrap import NUM_BLOCKS as NUM_BLOCKS
from ._bootstrap import NUM_REPLICATES as NUM_REPLICATES
from ._bootstrap import (
    Interval,
    Scale,
    at_least_apart,
    at_least_each_class,
    at_least_fisher,
    block_sums,
    bounded_interval,
    bounds_of,
    dealt,
    hash64,
    hash64_array,
    scale_of_difference,
    symmetric_interval,
)
from ._bootstrap import block_of as block_of
from ._bootstrap import interval as interval
from ._bootstrap import replicate_weights as replicate_weights
from ._bootstrap import stream as stream
from ._display import (
    AbstractDisplay,
    Display,
    FirstTime,
    JsonDisplay,
    PlainDisplay,
    SilentDisplay,
    clock,
    current_display,
    in_notebook,
    set_display,
    shown_by,
)
from ._display import make_display as make_display
from ._display import use_display as use_display
from ._errors import UserError as UserError
from ._errors import (
    did_you_mean,
    install_command,
    missing_extra,
    patient_hub,
    plain_fault,
    requirements,
    showable,
    visible,
)
from ._files import (
    atomic_folder,
    check_own_folder,
    check_writable,
    disk_named,
    is_unicode,
    json_fault,
    read_object,
    reserve_space,
    sweep_partial,
    writable,
)
from ._files import atomic_write as atomic_write
from ._folders import (
    SEAL,
    disagreement,
    is_still,
    kept,
    lock_file,
    locked,
    new_scratch_folder,
    scratch_folder,
    seal,
    sealed_folder,
    sweep_stale,
)
from ._intervals import block_effects as block_effects
from ._intervals import block_interval as block_interval
from ._intervals import interval_over_seeds as interval_over_seeds
from ._intervals import join_halves as join_halves
from ._intervals import means_without_each, on_halves, seed_deviations, shared_part
from ._intervals import sentence_df as sentence_df
from ._intervals import t_quantile as t_quantile
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
    as_tensor,
    as_written,
    check_settings,
    default_settings,
    example_setting,
    in_markdown,
    one_of,
    private_settings,
    read_only,
    read_setting,
)
from ._limits import describe_setting as describe_setting
from ._machine import (
    StopRequest,
    available_cores,
    available_memory,
    launched,
    local_rank,
    request_stop,
    require_memory,
    said_size,
    thread_budget,
)
from ._machine import set_threads as set_threads
from ._machine import stop_request as stop_request
from ._progress import Job, Progress
from ._provenance import (
    LATER,
    OWN_CODE,
    absolute,
    command_without_folders,
    described_in_file,
    digest,
    error_text,
    file_digest,
    model_name_of,
    name_of,
    named_fields,
    own_module,
    processor,
    provenance,
    public_provenance,
    run_python_file,
    version,
    without_folders,
)
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
