"""The one error shape of every route, and the mapping from engine errors to HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MAX_MESSAGE_CHARS = 1000
RETRY_AFTER_SECONDS = 1

# octavo error codes -> (status, type, code). Everything else is a 500.
_BY_ENGINE_CODE: dict[str, tuple[int, str, str | None]] = {
    "invalid_argument": (400, "invalid_request_error", None),
    "unsupported": (400, "invalid_request_error", "unsupported_value"),
    "context_length_exceeded": (400, "invalid_request_error", "context_length_exceeded"),
    "capacity": (400, "invalid_request_error", "context_length_exceeded"),
    "overloaded": (429, "rate_limit_error", "rate_limit_exceeded"),
    "not_found": (404, "invalid_request_error", "not_found"),
    "cancelled": (503, "service_unavailable_error", "request_cancelled"),
    "device_lost": (503, "service_unavailable_error", "service_unavailable"),
    "shutdown": (503, "service_unavailable_error", "service_unavailable"),
}


class ErrorBody(msgspec.Struct, kw_only=True):
    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorEnvelope(msgspec.Struct):
    error: ErrorBody


class ApiError(Exception):
    """A refusal or fault that a client gets to see, in OpenAI's terms."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.body = ErrorBody(message=shorten(message), type=type, param=param, code=code)

    def encode(self) -> bytes:
        """The envelope as JSON, all four keys always there."""
        return msgspec.json.encode(ErrorEnvelope(self.body))


def shorten(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    """Text that is cut where it would exceed `limit`, so that no error echoes a whole input."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def quoted(value: object, limit: int = 64) -> str:
    """A value as it may appear in a message: quoted and short."""
    return repr(shorten(value, limit)) if isinstance(value, str) else shorten(repr(value), limit)


def invalid(param: str | None, message: str, *, code: str | None = None) -> ApiError:
    """400 for a field that is malformed or out of range."""
    return ApiError(400, message, param=param, code=code)


def unsupported(param: str, what: str) -> ApiError:
    """400 for something that the API knows and this server does not do."""
    return ApiError(400, f"{param}: {what}", param=param, code="unsupported_parameter")


def context_length_exceeded(limit: int, prompt_tokens: str, param: str) -> ApiError:
    """400 with the code and the words that clients match on."""
    return ApiError(
        400,
        f"This model's maximum context length is {limit} tokens; {prompt_tokens}. Shorten the input.",
        param=param,
        code="context_length_exceeded",
    )


def model_not_found(name: str, served: Sequence[str]) -> ApiError:
    names = ", ".join(quoted(known, 128) for known in served[:8])
    return ApiError(
        404,
        f"The model {quoted(name, 128)} does not exist here; this server has {names} (GET /v1/models).",
        param="model",
        code="model_not_found",
    )


def invalid_api_key() -> ApiError:
    return ApiError(
        401,
        "Missing or wrong API key: send it as 'Authorization: Bearer KEY'.",
        code="invalid_api_key",
    )


def admin_key_needed(path: str) -> ApiError:
    """403 for what counts for all tenants together."""
    return ApiError(
        403,
        f"{path} shows what all tenants do: it needs one of the server's admin keys (--admin-key), or --debug-cache.",
        type="permission_error",
        code="admin_key_required",
    )


def request_timeout(what: str, seconds: float) -> ApiError:
    return ApiError(408, f"{what} did not come within {seconds:g} s.", code="request_timeout")


def _too_many(message: str) -> ApiError:
    return ApiError(
        429,
        f"{message}; retry later.",
        type="rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=RETRY_AFTER_SECONDS,
    )


def queue_full(limit: int) -> ApiError:
    return _too_many(f"The request queue is full ({limit} requests)")


def too_many_tokens(limit: int) -> ApiError:
    return _too_many(f"The request queue is full ({limit} prompt tokens)")


def too_many_of_tenant(limit: int) -> ApiError:
    return _too_many(f"This API key's tenant has {limit} requests under way, which is its limit")


def deadline_exceeded(seconds: float) -> ApiError:
    return ApiError(
        504,
        f"The request has no token after {seconds:g} s, which is its limit.",
        type="timeout_error",
        code="deadline_exceeded",
    )


def unavailable(reason: str, retry_after: int = RETRY_AFTER_SECONDS) -> ApiError:
    return ApiError(
        503,
        reason,
        type="service_unavailable_error",
        code="service_unavailable",
        retry_after=retry_after,
    )


def internal_error() -> ApiError:
    """500 that says nothing about the inside; the log has the rest."""
    return ApiError(500, "The server failed on this request.", type="server_error", code="internal_error")


def from_engine(code: str, param: str | None, message: str) -> ApiError:
    """Translate an engine error (octavo.errors) or the error of a delta."""
    known = _BY_ENGINE_CODE.get(code)
    if known is None:
        return ApiError(500, message, type="server_error", param=param or None, code="internal_error")
    status, type_, api_code = known
    retry = RETRY_AFTER_SECONDS if status in (429, 503) else None
    return ApiError(status, message, type=type_, param=param or None, code=api_code, retry_after=retry)
