"""Arrays in the emulated GPU's memory that offer DLPack as torch's tensors on a GPU do."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p
from typing import Any

import torch
from emulator_library import load

KDLCUDA = 2
_CODES = {
    torch.float32: 2,
    torch.float16: 2,
    torch.bfloat16: 4,
    torch.int32: 0,
    torch.int64: 0,
    torch.uint8: 1,
}


class _Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("ordinal", c_int32)]


class _DType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DType),
        ("shape", ctypes.POINTER(c_int64)), ("strides", ctypes.POINTER(c_int64)), ("byte_offset", c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""

    _fields_ = [
        ("tensor", _Tensor),
        ("manager", c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, c_void_p)),
    ]


_given: dict[int, tuple[Any, ...]] = {}  # what consumers hold, by the address of its _Managed


@ctypes.CFUNCTYPE(None, c_void_p)
def _take_back(managed: int) -> None:
    del _given[managed]


def emulator() -> ctypes.CDLL:
    library = load("octavo_cuda_emulated")
    for name in ("trial_malloc", "trial_make_stream"):
        getattr(library, name).restype = c_void_p
    return library


class _Memory:
    def __init__(self, size: int) -> None:
        self.address = emulator().trial_malloc(c_size_t(size))
        self.size = size

    def __del__(self) -> None:
        emulator().trial_free(c_void_p(self.address))


class DeviceArray:
    """A contiguous array of the emulated GPU, of NaN or -1 until it is written.

    Attributes:
        host: the same memory as a torch CPU tensor, to look into once the work on it is done.
        told: the streams that consumers named to ``__dlpack__``.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, ordinal: int = 0) -> None:
        count, size = torch.Size(shape).numel(), dtype.itemsize
        self.shape, self.dtype, self.ordinal = tuple(shape), dtype, ordinal
        self.strides: tuple[int, ...] | None = None
        self.told: list[int | None] = []
        self._memory = _Memory(max(count * size, 1))
        raw = (c_uint8 * self._memory.size).from_address(self._memory.address)
        self.host = torch.frombuffer(raw, dtype=torch.uint8)[: count * size].view(dtype).view(self.shape)

    @classmethod
    def of(cls, values: torch.Tensor) -> DeviceArray:
        """A copy of a tensor."""
        made = cls(tuple(values.shape), values.dtype)
        made.host.copy_(values)
        return made

    @property
    def address(self) -> int:
        return int(self._memory.address)

    def new_empty(self, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(shape, self.dtype, self.ordinal)

    def __dlpack_device__(self) -> tuple[int, int]:
        return KDLCUDA, self.ordinal

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.told.append(stream)
        shape = (c_int64 * len(self.shape))(*self.shape)
        strides = None if self.strides is None else (c_int64 * len(self.shape))(*self.strides)
        managed = _Managed()
        tensor = managed.tensor
        tensor.data, tensor.device, tensor.ndim = (
            self.address,
            _Device(KDLCUDA, self.ordinal),
            len(self.shape),
        )
        tensor.dtype = _DType(_CODES[self.dtype], 8 * self.dtype.itemsize, 1)
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(c_int64))
        if strides is not None:
            tensor.strides = ctypes.cast(strides, ctypes.POINTER(c_int64))
        managed.deleter = _take_back
        _given[ctypes.addressof(managed)] = (managed, shape, strides, self)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [c_void_p, ctypes.c_char_p, c_void_p]
        return new(ctypes.addressof(managed), b"dltensor", None)


@contextmanager
def stream() -> Iterator[int]:
    """A stream of the emulated GPU, as an integer."""
    made = emulator().trial_make_stream()
    try:
        yield made
    finally:
        emulator().trial_destroy_stream(c_void_p(made))


def synchronize(handle: int) -> None:
    status = emulator().trial_synchronize(c_void_p(handle))
    assert status == 0, f"CUDA error {status}"


def given() -> int:
    """Arrays that consumers have not given back."""
    return len(_given)
