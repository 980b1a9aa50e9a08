"""The flags of `octavo serve` that concern the API and the server; those of the model are octavo's."""

from __future__ import annotations

import argparse
import json
import logging
import os
from pathlib import Path
from typing import Any

from octavo.cli.model_flags import add_model_flags
from octavo.cli.vllm_flags import add_vllm_flags
from octavo.errors import InvalidArgumentError
from octavo.models.cache import cache_dir
from octavo.models.hub import DEFAULT_MODEL
from octavo_gateway.api.parsers.formats import (
    REASONING_ALIASES,
    REASONING_FORMATS,
    TOOL_ALIASES,
    TOOL_FORMATS,
)
from octavo_gateway.api.sampling import check_default_sampling
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.protocol.decode import decode
from octavo_gateway.protocol.errors import ApiError
from octavo_gateway.protocol.tokens import SharedPromptFile, TokenizeRequest
from octavo_gateway.server.settings import ServerSettings

_LOG_LEVELS = ("debug", "info", "warning", "error")

_MAX_SHARED_PROMPTS_BYTES = 16 * 1024 * 1024


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    parser.add_argument(
        "--model", dest="model_flag", metavar="MODEL", help="the same as the positional argument"
    )
    _add_server_flags(parser.add_argument_group("server"))
    _add_api_flags(parser.add_argument_group("API"))
    add_vllm_flags(parser)


def _add_server_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for every interface"
    )
    group.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one")
    group.add_argument(
        "--api-key",
        action="append",
        default=None,
        metavar="KEY",
        help="clients must send one of these keys; may be given several times, each is a tenant of its own; "
        "default $OCTAVO_API_KEY",
    )
    group.add_argument(
        "--api-key-file",
        metavar="FILE",
        help="a file of keys, one NAME=KEY or NAME=sha256:DIGEST per line; the name is the tenant's; read again on "
        "SIGHUP; $OCTAVO_API_KEYS may hold such entries, too",
    )
    group.add_argument(
        "--admin-key",
        action="append",
        default=None,
        metavar="KEY",
        help="this key sees GET /metrics, /debug/cache (as `octavo top` does), /debug/audit and /debug/decisions; "
        "may be given several times",
    )
    group.add_argument(
        "--debug-cache",
        action="store_true",
        help="whoever may send requests sees GET /metrics, /debug/cache, /debug/audit and /debug/decisions, too; "
        "without it the latter three are for admin keys alone, as is /metrics once there are keys of several tenants",
    )
    group.add_argument(
        "--max-queue",
        type=int,
        default=1024,
        help="requests that may wait beyond --max-num-seqs; more are answered 429",
    )
    group.add_argument(
        "--max-queue-tokens",
        type=int,
        default=2**20,
        help="prompt tokens that may wait for a first token; more are answered 429; 0: no such limit",
    )
    group.add_argument(
        "--first-token-timeout",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="a request that has no token after so long is ended with 504; 0: no such limit",
    )
    group.add_argument(
        "--request-timeout",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="a request that has not ended after so long is ended with what it has; a request may ask for less with "
        "timeout; 0: no such limit",
    )
    group.add_argument(
        "--max-tenant-requests",
        type=int,
        default=0,
        help="requests under way of one tenant (the name of its API key); more are answered 429; 0: no such limit",
    )
    group.add_argument(
        "--shared-prompts",
        metavar="FILE",
        help="prompts whose cached beginnings all tenants may share, as JSON: "
        '{"prompts": [{"messages": [...]}, {"prompt": "..."}]}, each as POST /tokenize takes it',
    )
    group.add_argument("--max-body-bytes", type=int, default=32 * 1024 * 1024, help="largest request body")
    group.add_argument(
        "--max-bodies-bytes",
        type=int,
        default=256 * 1024 * 1024,
        help="bodies above 64 KiB that are read at once, in bytes; more are answered 503",
    )
    group.add_argument(
        "--max-connections", type=int, default=4096, help="open connections; more are answered 503 and closed"
    )
    group.add_argument(
        "--header-timeout",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="how long the head of a request may take to come; then 408",
    )
    group.add_argument(
        "--body-timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long the body of a request may take to come; then 408",
    )
    group.add_argument(
        "--idle-timeout",
        type=float,
        default=75.0,
        metavar="SECONDS",
        help="how long a connection is kept for a next request; longer than a proxy in front keeps its own",
    )
    group.add_argument(
        "--stalled-reader-timeout",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="how long a client may leave its answer unread; then its connection is closed",
    )
    group.add_argument(
        "--max-stream-backlog",
        type=int,
        default=1024,
        help="steps that may wait for a client that reads slowly; then its request is aborted",
    )
    group.add_argument(
        "--shutdown-timeout",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="how long SIGTERM lets requests finish; the rest are ended with what they have",
    )
    group.add_argument(
        "--stall-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="/ready fails when the engine has work and makes no step for so long",
    )
    group.add_argument(
        "--crash-dir",
        default=None,
        metavar="FOLDER",
        help="where a crash leaves a report without text of prompts or answers; default: crashes, in the cache "
        "folder; '' leaves none",
    )
    group.add_argument(
        "--disable-log-requests",
        action="store_true",
        help="log no line per finished request; such a line has no text of prompts or answers",
    )
    group.add_argument("--log-level", choices=_LOG_LEVELS, default="info", help="what is logged to stderr")


def _add_api_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--served-model-name",
        action="append",
        metavar="NAME",
        help="name of the model in requests; may be given several times, the first is the one in answers; default: "
        "the model as it was named, a path without folders and ending",
    )
    group.add_argument(
        "--generation-config",
        choices=("auto", "vllm"),
        default="auto",
        help="where sampling defaults come from: the model's generation config (auto), or the API's own (vllm)",
    )
    group.add_argument(
        "--override-generation-config",
        type=_json_object,
        default={},
        metavar="JSON",
        help="sampling defaults that win over the model's, for example '{\"temperature\": 0.5}'",
    )
    group.add_argument(
        "--seed",
        type=int,
        help="makes the seeds of requests that give none reproducible, in the order they come",
    )
    group.add_argument(
        "--strict-max-tokens",
        action="store_true",
        help="answer 400 when max_tokens exceeds what window and cache leave, instead of clamping it",
    )
    group.add_argument("--max-stop-strings", type=int, default=4, help="most stop strings in a request")
    group.add_argument(
        "--max-logprobs", type=int, default=20, help="most alternatives per token in a request"
    )
    group.add_argument("--max-choices", type=int, default=128, help="most choices per prompt (n, best_of)")
    group.add_argument("--max-prompts", type=int, default=128, help="most prompts in one completion request")
    group.add_argument("--max-nesting-depth", type=int, default=64, help="deepest JSON that is read")
    group.add_argument(
        "--tool-call-parser",
        choices=("auto", *TOOL_FORMATS, *TOOL_ALIASES),
        default="auto",
        help="how the model writes tool calls; auto: as its chat template does, hermes where that knows no tools",
    )
    group.add_argument(
        "--reasoning-parser",
        choices=("auto", "none", *REASONING_FORMATS, *REASONING_ALIASES),
        default="auto",
        help="how the model writes thoughts; auto: as its chat template does",
    )
    group.add_argument(
        "--keep-alive-interval",
        type=float,
        default=15.0,
        metavar="SECONDS",
        help="a comment is sent on a stream that was silent for so long; 0 sends none",
    )
    group.add_argument(
        "--no-length-shortcut",
        action="store_true",
        help="tokenize prompts that cannot fit, too, so that the refusal tells how long they are",
    )
    group.add_argument(
        "--tokenizer-threads", type=int, default=2, help="threads that render and tokenize prompts"
    )


def take_model(flags: argparse.Namespace) -> None:
    """Make ``flags.model`` the model that was named, in whichever of the two ways."""
    given = flags.model_flag
    if given is not None and flags.model not in (DEFAULT_MODEL, given):
        raise InvalidArgumentError(
            f"--model {given!r} and the argument {flags.model!r} name two models; give one", param="model"
        )
    if given is not None:
        flags.model = given
    for name in flags.served_model_name or ():
        if not name.strip():
            raise InvalidArgumentError("--served-model-name must not be empty", param="served_model_name")


def default_name(model: str) -> str:
    """The name of a model in requests: a file's name without its ending, a folder's name, else as it was given."""
    path = Path(model).expanduser()
    if path.is_file():
        return path.stem
    return path.resolve().name or model if path.is_dir() else model


def server_settings(flags: argparse.Namespace) -> ServerSettings:
    _check(flags, "port", 0, 65535)
    for name in ("header_timeout", "body_timeout", "idle_timeout", "stalled_reader_timeout"):
        _check(flags, name, 0.001, 2**31)
    _check(flags, "max_connections", 1, 2**31)
    counts = ("max_queue", "max_tenant_requests", "max_body_bytes", "max_bodies_bytes", "max_stream_backlog")
    for name in (*counts, "shutdown_timeout", "stall_timeout"):
        _check(flags, name, 0, 2**53)
    return ServerSettings(
        host=flags.host,
        port=flags.port,
        api_keys=_api_keys(flags.api_key),
        named_keys=os.environ.get("OCTAVO_API_KEYS", ""),
        key_file=flags.api_key_file,
        admin_keys=_admin_keys(flags.admin_key),
        debug_cache=flags.debug_cache,
        max_body_bytes=flags.max_body_bytes,
        max_bodies_bytes=max(flags.max_bodies_bytes, flags.max_body_bytes),
        max_connections=flags.max_connections,
        header_seconds=flags.header_timeout,
        body_seconds=flags.body_timeout,
        idle_seconds=flags.idle_timeout,
        stalled_reader_seconds=flags.stalled_reader_timeout,
        max_concurrent=flags.max_num_seqs + flags.max_queue,
        max_tenant_requests=flags.max_tenant_requests,
        max_stream_backlog=flags.max_stream_backlog,
        shutdown_seconds=flags.shutdown_timeout,
        crash_folder=_crash_folder(flags),
        log_requests=not flags.disable_log_requests,
        stall_seconds=flags.stall_timeout,
    )


def api_settings(flags: argparse.Namespace) -> ApiSettings:
    bounds = (
        "max_stop_strings",
        "max_logprobs",
        "keep_alive_interval",
        "first_token_timeout",
        "request_timeout",
    )
    for name in (*bounds, "max_queue_tokens"):
        _check(flags, name, 0, 2**31)
    for name in ("max_choices", "max_prompts", "max_nesting_depth", "tokenizer_threads"):
        _check(flags, name, 1, 2**31)
    try:
        check_default_sampling(flags.override_generation_config)
    except ApiError as e:
        raise InvalidArgumentError(f"--override-generation-config: {e}", param=e.body.param or "") from None
    return ApiSettings(
        served_names=tuple(flags.served_model_name or (default_name(flags.model),)),
        other_names=() if flags.served_model_name else (flags.model,),
        default_sampling=flags.override_generation_config,
        use_generation_config=flags.generation_config == "auto",
        strict_max_tokens=flags.strict_max_tokens,
        max_stop_strings=flags.max_stop_strings,
        max_logprobs=flags.max_logprobs,
        max_choices=flags.max_choices,
        max_nesting_depth=flags.max_nesting_depth,
        max_prompts=flags.max_prompts,
        tool_parser=flags.tool_call_parser,
        reasoning_parser=flags.reasoning_parser,
        max_queue_tokens=flags.max_queue_tokens,
        shared_prompts=_shared_prompts(flags.shared_prompts, flags.max_nesting_depth),
        first_token_seconds=flags.first_token_timeout,
        request_seconds=flags.request_timeout,
        keep_alive_seconds=flags.keep_alive_interval,
        length_shortcut=not flags.no_length_shortcut,
        tokenizer_threads=flags.tokenizer_threads,
    )


def set_up_logging(level: str) -> None:
    logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def _api_keys(given: list[str] | None) -> tuple[str, ...]:
    keys = given if given is not None else [os.environ.get("OCTAVO_API_KEY", "")]
    if given is not None and not all(given):
        raise InvalidArgumentError("--api-key must not be empty", param="api_key")
    return tuple(key for key in keys if key)


def _admin_keys(given: list[str] | None) -> tuple[str, ...]:
    if given is not None and not all(given):
        raise InvalidArgumentError("--admin-key must not be empty", param="admin_key")
    return tuple(given or ())


def _shared_prompts(file: str | None, max_depth: int) -> tuple[TokenizeRequest, ...]:
    if file is None:
        return ()

    def wrong(what: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"--shared-prompts: {file}{what}", param="shared_prompts")

    try:
        with Path(file).open("rb") as f:
            raw = f.read(_MAX_SHARED_PROMPTS_BYTES + 1)
    except OSError as e:
        raise wrong(f" cannot be read ({e.strerror or e})") from None
    if len(raw) > _MAX_SHARED_PROMPTS_BYTES:
        raise wrong(f" is larger than {_MAX_SHARED_PROMPTS_BYTES} bytes")
    try:
        raw.decode()
    except UnicodeDecodeError as e:
        raise wrong(f" is not valid UTF-8 (byte {e.start})") from None
    try:
        prompts = decode(raw, SharedPromptFile, max_depth=max_depth).prompts
    except ApiError as e:
        raise wrong(f": {e}") from None
    if not prompts:
        raise wrong(" has no prompts")
    return tuple(prompts)


def _crash_folder(flags: argparse.Namespace) -> str | None:
    if flags.crash_dir is not None:
        return flags.crash_dir or None
    try:
        return str(cache_dir(flags.cache_dir) / "crashes")
    except RuntimeError:  # a user without a home
        return None


def _check(flags: argparse.Namespace, name: str, low: float, high: float) -> None:
    value = getattr(flags, name)
    if not low <= value <= high:
        flag = "--" + name.replace("_", "-")
        raise InvalidArgumentError(f"{flag} must be from {low:g} to {high:g}, got {value}", param=name)


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(f"not JSON: {e}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text}")
    return value
