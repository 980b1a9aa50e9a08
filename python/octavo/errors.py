"""The exceptions of octavo. Each names the field or thing at fault and says what to do."""

from __future__ import annotations


class OctavoError(Exception):
    """Base of all errors raised by octavo.

    Attributes:
        code: what kind of error, a stable word such as ``"invalid_argument"`` or ``"corrupt_file"``.
        param: the field, file or tensor at fault; empty when there is none.
    """

    def __init__(self, message: str, *, code: str = "internal", param: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class InvalidArgumentError(OctavoError, ValueError):
    """A parameter is out of range, malformed or not supported."""

    def __init__(self, message: str, *, code: str = "invalid_argument", param: str = "") -> None:
        super().__init__(message, code=code, param=param)


class ModelError(OctavoError):
    """A model cannot be loaded: a file is missing or corrupt, an architecture or format is not supported."""


class RefusedError(OctavoError):
    """A request was not accepted: it can never be served as it is, or the queue is full.

    Attributes:
        value, limit: the numbers behind the refusal, 0 when there are none.
    """

    def __init__(self, message: str, *, code: str, param: str = "", value: int = 0, limit: int = 0) -> None:
        super().__init__(message, code=code, param=param)
        self.value = value
        self.limit = limit


class EngineDeadError(OctavoError):
    """The engine has been shut down or cannot go on."""


_CLASSES: dict[str, type[OctavoError]] = {
    "invalid_argument": InvalidArgumentError,
    "not_found": ModelError,
    "unsupported": ModelError,
    "corrupt_file": ModelError,
    "shutdown": EngineDeadError,
    "device_lost": EngineDeadError,
}


def from_engine(code: str, param: str, message: str) -> OctavoError:
    """The exception for an error of the native engine."""
    return _CLASSES.get(code, OctavoError)(message, code=code, param=param)


def refusal(code: str, param: str, message: str, value: int, limit: int) -> RefusedError:
    """The exception for a request that the native engine did not accept."""
    return RefusedError(message, code=code, param=param, value=value, limit=limit)
