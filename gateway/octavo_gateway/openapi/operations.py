"""Every route with what it takes, what it answers, and how it can fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from octavo_gateway.protocol.cache import CacheAudit, CacheSnapshot
from octavo_gateway.protocol.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from octavo_gateway.protocol.completions import Completion, CompletionRequest
from octavo_gateway.protocol.decisions import Decisions
from octavo_gateway.protocol.models import ModelCard, ModelList
from octavo_gateway.protocol.status import Status, Version
from octavo_gateway.protocol.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest

# What each status means, whichever route answers it.
ERRORS = {
    400: "The request is malformed, a value is out of range, or the input does not fit the model's window.",
    401: "The API key is missing or wrong.",
    403: "There are several tenants, and the key is no admin key.",
    404: "There is no such model; or the route is switched off.",
    408: "The body did not come in time.",
    413: "The body is larger than the server reads.",
    415: "The body is compressed.",
    429: "The queue is full, or the limit of the API key's tenant reached; retry after what Retry-After says.",
    500: "The server failed on this request.",
    503: "The server loads its model, shuts down, makes no progress or has no room; retry after what Retry-After says.",
    504: "The request had no token, or no answer without one, when its time was over.",
}
_OF_A_BODY = (400, 404, 408, 413, 415, 429, 500, 503, 504)
_OF_THE_SERVER = (400, 500, 503)
_NONE_BUT_FAULTS = (400, 500)

Shape = type[msgspec.Struct]


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    summary: str
    tag: str
    errors: Sequence[int]
    request: Shape | None = None
    answer: Shape | None = None
    media: str = "application/json"  # of the answer
    chunk: Shape | None = None  # the data of each server-sent event, with `stream`
    open: bool = False  # needs no key

    @property
    def id(self) -> str:
        return f"{self.method}_{self.path.strip('/').replace('/', '_').replace('.', '_')}"


OPERATIONS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer a conversation.",
        "generation",
        _OF_A_BODY,
        request=ChatCompletionRequest,
        answer=ChatCompletion,
        chunk=ChatCompletionChunk,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Continue prompts.",
        "generation",
        _OF_A_BODY,
        request=CompletionRequest,
        answer=Completion,
        chunk=Completion,
    ),
    Operation(
        "post",
        "/tokenize",
        "The token ids of a prompt or of a conversation.",
        "tokens",
        _OF_A_BODY,
        request=TokenizeRequest,
        answer=Tokenized,
    ),
    Operation(
        "post",
        "/detokenize",
        "The text of token ids.",
        "tokens",
        _OF_A_BODY,
        request=DetokenizeRequest,
        answer=Detokenized,
    ),
    Operation("get", "/v1/models", "The served models.", "models", _OF_THE_SERVER, answer=ModelList),
    Operation("get", "/v1/models/{model}", "One model.", "models", (*_OF_THE_SERVER, 404), answer=ModelCard),
    Operation("get", "/health", "The process lives.", "server", _NONE_BUT_FAULTS, answer=Status, open=True),
    Operation("get", "/ping", "As /health.", "server", _NONE_BUT_FAULTS, answer=Status, open=True),
    Operation("post", "/ping", "As /health.", "server", _NONE_BUT_FAULTS, answer=Status, open=True),
    Operation(
        "get",
        "/ready",
        "The model is loaded and makes progress.",
        "server",
        _OF_THE_SERVER,
        answer=Status,
        open=True,
    ),
    Operation("get", "/version", "The version.", "server", _NONE_BUT_FAULTS, answer=Version),
    Operation(
        "get",
        "/metrics",
        "Prometheus metrics. Where keys of several tenants are known, with --debug-cache or an admin key only.",
        "server",
        (*_OF_THE_SERVER, 403),
        media="text/plain",
    ),
    Operation(
        "get",
        "/debug/cache",
        "What the cache holds, block by block, and why each request waits. With --debug-cache or an admin key only.",
        "server",
        (*_OF_THE_SERVER, 404),
        answer=CacheSnapshot,
    ),
    Operation(
        "get",
        "/debug/audit",
        "Counts every block of the cache; an error where they do not add up. With --debug-cache or an admin key only.",
        "server",
        (*_OF_THE_SERVER, 404),
        answer=CacheAudit,
    ),
    Operation(
        "get",
        "/debug/decisions",
        "What the scheduler was told and decided last, without text. With --debug-cache or an admin key only.",
        "server",
        (*_OF_THE_SERVER, 404),
        answer=Decisions,
    ),
    Operation("get", "/openapi.json", "This document.", "server", _OF_THE_SERVER),
    Operation("get", "/docs", "This document as a page.", "server", _OF_THE_SERVER, media="text/html"),
)
