"""What lies under every room: errors, display, random streams, error bars, provenance, atomic files."""

from ._bootstrap import NUM_BLOCKS as NUM_BLOCKS
from ._bootstrap import NUM_REPLICATES as NUM_REPLICATES
from ._bootstrap import Interval as Interval
from ._bootstrap import block_of as block_of
from ._bootstrap import interval as interval
from ._bootstrap import replicate_weights as replicate_weights
from ._digest import digest as digest
from ._digest import file_digest as file_digest
from ._display import Display as Display
from ._display import DisplayKind as DisplayKind
from ._display import Progress as Progress
from ._display import clock as clock
from ._display import current_display as current_display
from ._display import make_display as make_display
from ._display import use_display as use_display
from ._errors import UserError as UserError
from ._errors import missing_extra as missing_extra
from ._files import atomic_folder as atomic_folder
from ._files import atomic_write as atomic_write
from ._provenance import provenance as provenance
from ._provenance import version as version
from ._random import hash64 as hash64
from ._random import hash64_array as hash64_array
from ._random import stream as stream
from ._threads import available_cores as available_cores
from ._threads import set_threads as set_threads
