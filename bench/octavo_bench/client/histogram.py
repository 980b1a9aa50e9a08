"""HdrHistogram's portable form: latencies that any of its tools can read, merge and plot."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
import numpy.typing as npt

DIGITS = 3
HIGHEST = 3_600_000_000  # an hour, in microseconds
_HALF_BITS = 10  # half a sub-bucket count of 2,048, which resolves three digits
_HALF = 1 << _HALF_BITS
_COOKIE, _COMPRESSED = 0x1C849303 | 0x10, 0x1C849304 | 0x10


def encode_histogram(seconds: npt.NDArray[np.float64]) -> str:
    """The values as a compressed V2 histogram of microseconds with three significant digits, in base64."""
    micros = np.clip(np.rint(seconds * 1e6), 0, HIGHEST).astype(np.int64)
    counts = np.bincount(_slots(micros), minlength=1)
    payload = _runs(counts)
    body = struct.pack(">iiiiqqd", _COOKIE, len(payload), 0, DIGITS, 1, HIGHEST, 1.0) + payload
    packed = zlib.compress(body)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED, len(packed)) + packed).decode()


def _slots(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Index of the count of each value: exact below 2,048, then 1,024 slots per power of two."""
    _, bits = np.frexp(values.astype(np.float64))
    bucket = np.maximum(bits.astype(np.int64) - (_HALF_BITS + 1), 0)
    return np.asarray(bucket * _HALF + (values >> bucket))


def _runs(counts: npt.NDArray[np.int64]) -> bytes:
    """Counts as zigzag LEB128; a run of zeros is its negative length."""
    out = bytearray()
    zeros = 0
    for count in counts.tolist():
        if not count:
            zeros += 1
            continue
        if zeros:
            out += _leb(-zeros)
            zeros = 0
        out += _leb(count)
    return bytes(out)


def _leb(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F and len(out) < 8:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)
