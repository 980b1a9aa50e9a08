"""The random generator against its published vectors and an implementation that numpy's own confirms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _engine

philox4x32 = _engine.sampling.philox4x32

# The known answers of the Random123 distribution for philox4x32, 10 rounds: counter, key, output.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


def philox4(counter, key, bits, multipliers, weyl):
    """Philox with four words of `bits` bits and ten rounds, after the paper."""
    mask = 2**bits - 1
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = multipliers[0] * c[0], multipliers[1] * c[2]
        c = [(b >> bits) ^ c[1] ^ k[0], b & mask, (a >> bits) ^ c[3] ^ k[1], a & mask]
        k = [(k[i] + weyl[i]) & mask for i in range(2)]
    return c


@pytest.mark.parametrize(("counter", "key", "want"), KNOWN)
def test_known_answers(counter, key, want):
    assert philox4x32(words(counter), words(key)) == words(want)


def test_the_reference_below_equals_numpy_at_64_bits():
    constants = (0xD2E7470EE14C6C93, 0xCA5A826395121157), (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
    generator = np.random.Philox(counter=[41, 7, 1, 0], key=[123456789, 987654321])
    want = generator.random_raw(4).tolist()  # numpy counts up before it draws
    assert philox4([42, 7, 1, 0], [123456789, 987654321], 64, *constants) == want


@settings(max_examples=200, deadline=None)
@given(
    counter=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4),
    key=st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2),
)
def test_any_counter_and_key(counter, key):
    constants = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
    assert philox4x32(counter, key) == philox4(counter, key, 32, *constants)
