"""Random streams are functions of their key."""

import hashlib
import os
import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.foundation import hash64, hash64_array, stream

keys = st.lists(st.one_of(st.integers(-(2**40), 2**40), st.text(max_size=5)), min_size=1, max_size=4).map(tuple)


def test_a_stream_does_not_depend_on_other_streams():
    alone = stream("masking", 3, 17).random(5)
    others = [stream("masking", 3, index) for index in range(20)]
    for other in others:
        other.random(7)
    np.testing.assert_array_equal(stream("masking", 3, 17).random(5), alone)


def test_a_stream_is_philox_with_the_hash_of_its_key():
    words = hashlib.blake2b(b"str:masking\x1fint:3", digest_size=16).digest()
    philox = np.random.Generator(np.random.Philox(key=int.from_bytes(words, "little")))
    own = stream("masking", 3)
    np.testing.assert_array_equal(own.random(9), philox.random(9))
    assert pickle.loads(pickle.dumps(own)).random() == philox.random()


@given(first=keys, second=keys)
def test_keys_are_told_apart(first, second):
    same = first == second
    assert (hash64(*first) == hash64(*second)) == same
    assert (stream(*first).random() == stream(*second).random()) == same


def test_parts_of_a_key_do_not_run_together():
    keys = [("a", "b"), ("ab",), ("a", "", "b"), ("1",), (1,), ("a",), ("b", "a"), (11,), (1, 1), (-1,)]
    assert len({hash64(*key) for key in keys}) == len(keys)


def test_an_integer_of_numpy_is_the_same_key_as_a_plain_one():
    for kind in (np.int32, np.int64, np.uint8):
        assert hash64("sentence", kind(7)) == hash64("sentence", 7)
        assert stream("sentence", kind(7)).random() == stream("sentence", 7).random()
    with pytest.raises(TypeError):
        hash64("sentence", 7.0)


def test_values_never_change():
    """Stored results depend on these numbers: a change here is a new version of every measure."""
    assert hash64("masking", 0) == 13_714_097_689_025_770_933
    assert stream("masking", 0).integers(1000, size=3).tolist() == [66, 923, 185]
    assert hash64_array(("block",), np.array([0, 1])).tolist() == [9_695_462_317_290_100_811, 6_144_536_763_748_336_533]


def test_same_numbers_in_another_process():
    code = "from infoflow.foundation import hash64; print(hash64('x', 5))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_env())
    assert int(printed.stdout) == hash64("x", 5)


def _env():
    return {**os.environ, "PYTHONHASHSEED": "123"}


def splitmix_by_hand(state):
    """One output of splitmix64 (Steele, Lea and Flood 2014), in Python's integers."""
    mask = 2**64 - 1
    z = (state + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_splitmix_reference_value():
    """The generator's first output from state 0, as published with its C source."""
    assert splitmix_by_hand(0) == 0xE220A8397B1DCDAF


@given(rows=st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31)), min_size=1, max_size=6))
def test_array_hash_agrees_with_integers(rows):
    first, second = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    expected = []
    for a, b in rows:
        state = hash64("key")
        for value in (a, b):
            state = splitmix_by_hand(state ^ splitmix_by_hand(value % 2**64))
        expected.append(state)
    assert hash64_array(("key",), first, second).tolist() == expected


def test_array_hash_is_a_function_of_the_row_whatever_its_neighbours_and_type():
    ids = np.arange(1000)
    whole = hash64_array(("k",), ids)
    np.testing.assert_array_equal(hash64_array(("k",), ids[::-1].astype(np.int32))[::-1], whole)
    assert len(set(whole.tolist())) == 1000
    assert not np.array_equal(hash64_array(("other",), ids), whole)


def test_neighbouring_rows_are_spread_evenly():
    buckets = np.bincount((hash64_array(("k",), np.arange(64_000)) % np.uint64(64)).astype(int), minlength=64)
    assert ((buckets - 1000) ** 2 / 1000).sum() < 104  # 99.9 % point of chi-squared with 63 degrees of freedom
    bits = np.array([[(int(h) >> bit) & 1 for bit in range(64)] for h in hash64_array(("k",), np.arange(2000))])
    changed = np.mean([(a != b).mean() for a, b in pairwise(bits)])
    assert 0.49 < changed < 0.51
