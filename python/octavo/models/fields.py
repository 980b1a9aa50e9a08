"""Reading a model's description without believing it: every field is checked for type and range, and what was not
read can be listed, so that nothing is ignored by accident."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from octavo.errors import ModelError

_REQUIRED: Any = object()


class Fields:
    """The fields of a JSON object or of GGUF metadata, each read once by type.

    A method given no ``default`` requires its field. ``None`` counts as missing. Errors are ``ModelError`` with the
    field as ``param``: code ``"corrupt_file"`` for a value that cannot be, ``"unsupported"`` for one that cannot be
    honoured.
    """

    def __init__(self, values: Mapping[str, Any], source: str, prefix: str = "") -> None:
        self.values = values
        self.source = source
        self._prefix = prefix
        self._read: set[str] = set()

    def below(self, prefix: str) -> Fields:
        """The fields whose names begin with ``prefix``, under the rest of their names; what is read there is read."""
        out = Fields(self.values, self.source, self._prefix + prefix)
        out._read = self._read
        return out

    def integer(self, name: str, default: Any = _REQUIRED, *, low: int = 1, high: int = 2**31 - 1) -> Any:
        """An integer in [low, high], or ``default``."""
        value = self._take(name, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.corrupt(name, f"must be an integer from {low} to {high}, got {value!r}")
        return value

    def number(self, name: str, default: Any = _REQUIRED) -> Any:
        """A finite number above 0, or ``default``."""
        value = self._take(name, default)
        if value is default:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
            raise self.corrupt(name, f"must be a finite number above 0, got {value!r}")
        return float(value)

    def boolean(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self._take(name, default)
        if not isinstance(value, bool):
            raise self.corrupt(name, f"must be true or false, got {value!r}")
        return value

    def numbers(self, name: str) -> list[float]:
        """A list of finite numbers above 0; empty when missing."""
        value = self._list(name)
        for v in value:
            if isinstance(v, bool) or not isinstance(v, int | float) or not 0 < v < math.inf:
                raise self.corrupt(name, f"must be a list of finite numbers above 0, got {v!r} in it")
        return [float(v) for v in value]

    def strings(self, name: str, honoured: Collection[str], size: int) -> list[str]:
        """A list of ``size`` strings out of a few; empty when missing."""
        value = self._list(name, size)
        for v in value:
            if v not in honoured:
                raise self.unsupported(name, f"has {v!r}; supported: {', '.join(map(repr, honoured))}")
        return value

    def flags(self, name: str, size: int, *, or_period: int | None = None) -> list[bool]:
        """A list of ``size`` zeros and ones; empty when missing.

        With ``or_period`` a number p may stand for it, ``or_period`` when missing: every p-th is 0, the others 1.
        """
        if or_period is not None and not isinstance(self.values.get(self._prefix + name), list):
            period = self.integer(name, or_period)
            return [(i + 1) % period != 0 for i in range(size)]
        value = self._list(name, size)
        for v in value:
            if v not in (0, 1):
                raise self.corrupt(name, f"must be a list of 0 and 1, got {v!r} in it")
        return [bool(v) for v in value]

    def indices(self, name: str, size: int) -> list[int]:
        """A list of integers in [0, size); empty when missing."""
        value = self._list(name)
        for v in value:
            if isinstance(v, bool) or not isinstance(v, int) or not 0 <= v < size:
                raise self.corrupt(name, f"must be a list of numbers from 0 to {size - 1}, got {v!r} in it")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        """An object; empty when missing."""
        value = self._take(name, {})
        if not isinstance(value, Mapping):
            raise self.corrupt(name, f"must be an object, got {value!r}")
        return value

    def token_ids(self, name: str) -> list[int]:
        """A token id or a list of them; empty when missing."""
        value = self._take(name, [])
        ids = value if isinstance(value, list) else [value]
        for i in ids:
            if isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < 2**31:
                raise self.corrupt(name, f"must be a token id or a list of them, got {value!r}")
        return ids

    def _list(self, name: str, size: int | None = None) -> list[Any]:
        value = self._take(name, [])
        if not isinstance(value, list) or (value and size is not None and len(value) != size):
            shape = "a list" if size is None else f"a list of {size}"
            raise self.corrupt(name, f"must be {shape}, got {value!r}")
        return value

    def only(self, name: str, honoured: Collection[Any], default: Any) -> Any:
        """A field that has one of a few values here; any other is unsupported."""
        value = self._take(name, default)
        if value not in honoured:
            shown = ", ".join(repr(v) for v in honoured)
            raise self.unsupported(name, f"is {value!r}; supported: {shown}")
        return value

    def skip(self, names: Collection[str]) -> None:
        """Fields that do not change what the model computes."""
        self._read.update(self._prefix + name for name in names)

    def unread(self) -> list[str]:
        """Names of fields with a value that nobody asked for."""
        start = len(self._prefix)
        return sorted(
            k[start:]
            for k, v in self.values.items()
            if k.startswith(self._prefix) and k not in self._read and v is not None
        )

    def corrupt(self, name: str, message: str) -> ModelError:
        name = self._prefix + name
        return ModelError(f"{self.source}: {name} {message}", code="corrupt_file", param=name)

    def unsupported(self, name: str, message: str) -> ModelError:
        name = self._prefix + name
        return ModelError(f"{self.source}: {name} {message}", code="unsupported", param=name)

    def _take(self, name: str, default: Any) -> Any:
        self._read.add(self._prefix + name)
        value = self.values.get(self._prefix + name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.corrupt(name, "is missing")
        return default
