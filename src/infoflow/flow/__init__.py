"""One pass over a corpus for any number of measures."""

from ._distributed import agree, first_then_others, is_first, wait_for_all
from ._distributed import processes as processes
from ._forward import attention_size, check_finite, cut_to_budget, forward, query_block, read_whole
from ._input import Row, cannot_hide
from ._measure import AbstractMeasure as AbstractMeasure
from ._measure import AttentionByBlocks, Failure, Failures, NothingToRead, Origin, describe_measure
from ._measure import Intervention as Intervention
from ._measure import Measure as Measure
from ._measure import PairMeasure as PairMeasure
from ._measure import PassOptions as PassOptions
from ._measure import SampleMeasure as SampleMeasure
from ._occurrences import Occurrences, RankStrata, Tag
from ._own_measures import given_measures, load_measures, measure_of
from ._pass import SampleKey
from ._reader import Reader as Reader
from ._runner import MODEL, Measured, accepted_corpus, accepted_model, compare, compare_samples, match_words, measure
from ._runner import collect as collect
from ._sample import NO_LABEL, SAMPLE_COLUMNS, AttentionKey, Need, PaddedBatch, Regime, SampleFacts
from ._sample import Activations as Activations
from ._sample import SampleRequest as SampleRequest
from ._sample import Stream as Stream
from ._sample import TokenSample as TokenSample
from ._selection import select_occurrences
from ._shards import job_key, measure_shard, merge_shards
