"""A model, loaded and running: files, tokenizer, chat template and engine, made once and used by every front."""

from __future__ import annotations

import contextlib
import json
import os
import random
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from octavo import _engine, checks, memory
from octavo.chat import ChatTemplate
from octavo.engine_args import EngineArgs
from octavo.errors import EngineDeadError, InvalidArgumentError, ModelError, RefusedError
from octavo.fork_point import ForkPoint
from octavo.models import hub
from octavo.models.checkpoint import Checkpoint, ModelInfo, describe, open_checkpoint
from octavo.models.config import from_hugging_face
from octavo.sampling_params import SamplingParams
from octavo.structured import GrammarCompiler, GrammarLimits, StructuredOutputsParams
from octavo.tokenizer import Tokenizer, from_folder, from_gguf

# generation_config.json's name for a default → ours.
_DEFAULTS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}

_LEAVE_SECONDS = 1.0


class LoadedModel:
    """A model with its engine running.

    Attributes:
        args: what was asked for.
        name: the model as it was named.
        info: the model's shape and formats.
        config: the engine's configuration of it.
        tokenizer: None for a model without one.
        engine: the native engine; its thread runs.
        max_model_len: longest prompt plus answer in tokens.
        load_seconds: how long loading took.
    """

    def __init__(
        self, args: EngineArgs, checkpoint: Checkpoint, tokenizer: Tokenizer | None, engine: _engine.Engine
    ) -> None:
        self.args = args
        self.name = args.model if isinstance(args.model, str) else str(checkpoint.path)
        self.path = checkpoint.path
        self.config = checkpoint.config
        self.info: ModelInfo = describe(checkpoint, args.kv_dtype)
        self.tokenizer = tokenizer
        self.engine = engine
        self.max_model_len: int = engine.info()["max_model_len"]
        self.load_seconds = 0.0
        ids = [*checkpoint.config.eos_token_ids, *(tokenizer.eos_token_ids if tokenizer else [])]
        self.eos_token_ids: list[int] = [i for i in dict.fromkeys(ids) if 0 <= i < self.vocab_size]
        self._seeds = None if args.seed is None else random.Random(args.seed)
        self._pid = os.getpid()
        # Joins the engine thread when this object goes, at the latest before the interpreter does.
        self._waiting: list[int] = []  # the threads that wait natively for this engine
        self._finalizer = weakref.finalize(self, _shutdown, engine, self._pid, self._waiting)

    @property
    def vocab_size(self) -> int:
        """Token ids that the model knows, padding rows of its embedding included."""
        return self.config.vocab

    @cached_property
    def chat_template(self) -> ChatTemplate:
        """The template that turns messages into token ids."""
        return ChatTemplate(self.require_tokenizer("messages"), self.args.chat_template)

    @cached_property
    def generation_config(self) -> dict[str, Any]:
        """The model's own sampling defaults, as ``SamplingParams`` names them."""
        if self.args.generation_config != "auto" or not self.path.is_dir():
            return {}
        try:
            values = json.loads((self.path / "generation_config.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return {ours: values[theirs] for theirs, ours in _DEFAULTS.items() if values.get(theirs) is not None}

    @cached_property
    def grammars(self) -> GrammarCompiler:
        """Compiles what structured output asks for."""
        args = self.args
        limits = GrammarLimits(
            args.max_grammar_bytes, args.grammar_timeout, args.grammar_threads, args.grammar_cache_size
        )
        compiler = GrammarCompiler(
            self.require_tokenizer("structured_outputs"), self.vocab_size, self.eos_token_ids, limits
        )
        weakref.finalize(self, compiler.close)
        return compiler

    def with_grammar(self, params: SamplingParams) -> SamplingParams:
        """``params`` with their grammar compiled, waiting for it on this thread."""
        if params.structured_outputs is None:
            return params
        spec = StructuredOutputsParams.of(params.structured_outputs).spec()
        return params.with_grammar(self.grammars.compile(spec))

    def default_sampling_params(self) -> SamplingParams:
        """What a request gets that names no parameters."""
        return SamplingParams(**self.generation_config)

    def require_tokenizer(self, what: str) -> Tokenizer:
        """The tokenizer; an error that names ``what`` needs it if there is none."""
        if self.tokenizer is None:
            raise InvalidArgumentError(
                f"{what} need a tokenizer, but this model was loaded without one; give token ids", param=what
            )
        return self.tokenizer

    def prompt_ids(self, ids: Any) -> list[int]:
        """Token ids from outside, checked against the vocabulary."""
        out = checks.token_ids("prompt_token_ids", ids, self.vocab_size)
        if not out:
            raise InvalidArgumentError("the prompt is empty: it must have at least one token", param="prompt")
        return out

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        channel: _engine.Channel,
        *,
        namespace: int = 0,
        priority: int = 0,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> int:
        """Hand a request to the engine and return its id; its deltas come through ``channel``. Thread-safe.

        Args:
            ids: the prompt, ids within the vocabulary.
            namespace: equal prompts share their cache only within one namespace.
            priority: smaller runs first, among the requests of one tenant.
            tenant: tenants share the engine's time fairly.
            shared_tokens: the full cache blocks of so many leading tokens are shared with all namespaces.

        Raises:
            RefusedError: it can never be served, with the numbers.
        """
        self.check_alive()
        priority = checks.integer("priority", priority, -(2**31), 2**31 - 1)
        tenant = checks.integer("tenant", tenant, 0, 2**64 - 1)
        shared_tokens = checks.integer("shared_tokens", shared_tokens, 0, 2**31 - 1)
        native = self._native(params, len(ids))
        try:
            return self.engine.submit(
                ids,
                native,
                channel,
                namespace=namespace,
                priority=priority,
                tenant=tenant,
                shared_tokens=shared_tokens,
            )
        except RefusedError as error:
            raise self._with_advice(error) from None

    def fork(self, point: ForkPoint, channel: _engine.Channel) -> int:
        """Continue a request's choice a second time; like ``submit``."""
        self.check_alive()
        native = self._native(point.params, len(point.ids))
        try:
            return self.engine.fork(
                point.engine_id, channel, params=native, choice=point.choice, position=len(point.ids)
            )
        except RefusedError as error:
            raise self._with_advice(error) from None

    def _with_advice(self, error: RefusedError) -> RefusedError:
        """The refusal of a prompt that a longer window would take says so; the model's own limit cannot be raised."""
        longest = self.config.max_positions
        if error.code != "context_length_exceeded" or not error.value < longest > self.max_model_len:
            return error
        message = f"{str(error).rstrip('.')} or raise max_model_len, which may be up to {longest}."
        return RefusedError(message, code=error.code, param=error.param, value=error.value, limit=error.limit)

    def _native(self, params: SamplingParams, prompt_tokens: int) -> _engine.SamplingParams:
        native = self.with_grammar(params).to_engine(
            vocab_size=self.vocab_size,
            eos_token_ids=self.eos_token_ids,
            tokenizer=self.tokenizer,
            max_new_tokens=max(1, self.max_model_len - prompt_tokens),
        )
        if params.seed is None and self._seeds is not None:
            native.seed = self._seeds.getrandbits(64)
        return native

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around native waits for the engine: a shutdown lets this thread come back to Python first.

        A thread that is still in native code when the interpreter ends would take the process down with it.
        """
        self._waiting.append(threading.get_ident())
        try:
            yield
        finally:
            self._waiting.remove(threading.get_ident())

    @property
    def is_alive(self) -> bool:
        """Whether the engine takes requests: not shut down, and in the process that started it."""
        return self._finalizer.alive and os.getpid() == self._pid

    def check_alive(self) -> None:
        """Raise ``EngineDeadError`` after a shutdown, or in a process that was forked off."""
        if os.getpid() != self._pid:
            raise EngineDeadError(
                f"this engine belongs to process {self._pid}; its thread does not survive os.fork(): load the model "
                f"in process {os.getpid()} itself, or start it with the spawn method",
                code="shutdown",
                param="engine",
            )
        if not self._finalizer.alive:
            raise EngineDeadError("the engine has been shut down", code="shutdown", param="engine")

    def shutdown(self) -> None:
        """Abort what runs and stop the engine thread. More calls do nothing."""
        self._finalizer()


def load(args: EngineArgs, *, trace: bool = False) -> LoadedModel:
    """Load what ``args`` describe and start the engine; the tokenizer is built while the weights are packed.

    With ``trace`` the engine notes where the time of its steps goes (``engine.take_trace()``).

    Raises:
        ModelError: files are missing, corrupt, or of a kind that is not supported.
        InvalidArgumentError: an argument does not fit the model or the machine.
    """
    start = time.monotonic()
    checkpoint = _open(args).quantized(args.quantization)
    config = checkpoint.config
    max_model_len = _window(args, config.max_positions)
    step_tokens = max(args.max_num_batched_tokens, args.max_num_seqs)
    if not args.enable_chunked_prefill:
        step_tokens = max(step_tokens, max_model_len)
    device = _device(args.device)
    blocks = _blocks(args, checkpoint, device, max_model_len, step_tokens)
    with ThreadPoolExecutor(1, thread_name_prefix="octavo-tokenizer") as pool:
        building: Future[Tokenizer | None] = pool.submit(_build_tokenizer, args, checkpoint)
        engine = _engine.Engine(
            config,
            checkpoint.weights,
            max_model_len=max_model_len,
            block_size=args.block_size,
            kv_dtype=args.kv_dtype,
            num_blocks=blocks,
            max_num_seqs=args.max_num_seqs,
            max_num_seqs_per_tenant=args.max_num_seqs_per_tenant,
            max_num_batched_tokens=step_tokens,
            enable_prefix_caching=args.enable_prefix_caching,
            threads=args.threads,
            isa=args.isa,
            device=device,
            fast=not args.reproducible,
            graphs=not args.enforce_eager,
            screen_head=args.screen_head,
            memory_utilization=args.gpu_memory_utilization or memory.GPU_SHARE,
            trace=trace,
        )
        tokenizer = building.result()
        engine.start(_empty_table(config.vocab) if tokenizer is None else tokenizer.token_table(config.vocab))
    model = LoadedModel(args, checkpoint, tokenizer, engine)
    model.load_seconds = time.monotonic() - start
    return model


def _device(wanted: str) -> str:
    """What "auto" stands for on this machine; any other device as it is."""
    if wanted != "auto":
        return wanted
    return "cuda" if _engine.backends()["cuda"]["devices"] else "cpu"


def _blocks(
    args: EngineArgs, checkpoint: Checkpoint, device: str, max_model_len: int, step_tokens: int
) -> int:
    """Blocks of the cache; 0 where the engine measures what a GPU has room for."""
    given = args.kv_cache_memory is not None or args.num_gpu_blocks_override is not None
    if device != "cpu" and not given:
        return 0
    return memory.num_blocks(
        groups=_engine.kv_groups(
            checkpoint.config,
            kv_dtype=args.kv_dtype,
            block_size=args.block_size,
            max_num_seqs=args.max_num_seqs,
            max_num_batched_tokens=step_tokens,
        ),
        block_size=args.block_size,
        max_model_len=max_model_len,
        weight_bytes=checkpoint.weights.file_bytes,
        utilization=args.gpu_memory_utilization,
        cache_bytes=args.kv_cache_memory,
        blocks=args.num_gpu_blocks_override,
        installed=None if device == "cpu" else memory.UNBOUNDED,
    )


def _open(args: EngineArgs) -> Checkpoint:
    if args.weights is None:
        return open_checkpoint(
            hub.resolve(args.model, cache_dir=args.cache_dir, revision=args.revision, offline=args.offline)
        )
    config, folder = _given_config(args)
    return Checkpoint(folder, config, _engine.WeightFiles.from_tensors(dict(args.weights)))


def _given_config(args: EngineArgs) -> tuple[_engine.ModelConfig, Path]:
    """The configuration beside which tensors were given: a map, a configuration object or a folder."""
    given = args.model.to_dict() if hasattr(args.model, "to_dict") else args.model
    if isinstance(given, Mapping):
        return _float_config(given, "model"), Path()
    folder = hub.resolve(given, cache_dir=args.cache_dir, revision=args.revision, offline=args.offline)
    if not folder.is_dir():
        raise InvalidArgumentError(
            f"model must be a configuration or a folder with config.json when weights are given, got {str(folder)!r}",
            param="model",
        )
    path = folder / "config.json"
    try:
        return _float_config(json.loads(path.read_text("utf-8")), str(path)), folder
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} cannot be read: {error}", code="corrupt_file", param="config.json"
        ) from error


def _float_config(given: Mapping[str, Any], source: str) -> _engine.ModelConfig:
    if given.get("quantization_config") is not None:
        raise InvalidArgumentError(
            f"{source} has a quantization_config: quantized weights are read from files, not given as tensors",
            param="quantization_config",
        )
    return from_hugging_face(given, source=source)


def _window(args: EngineArgs, max_positions: int) -> int:
    if args.max_model_len is None:
        return max_positions
    if args.max_model_len > max_positions:
        raise InvalidArgumentError(
            f"max_model_len must be at most {max_positions}, the positions this model was made for, got "
            f"{args.max_model_len}",
            param="max_model_len",
        )
    return args.max_model_len


def _build_tokenizer(args: EngineArgs, checkpoint: Checkpoint) -> Tokenizer | None:
    if args.skip_tokenizer_init:
        return None
    if isinstance(args.tokenizer, Tokenizer):
        return args.tokenizer
    if args.tokenizer is not None:
        try:
            path = hub.resolve(args.tokenizer, cache_dir=args.cache_dir, offline=args.offline)
        except ModelError as error:
            raise ModelError(f"tokenizer: {error}", code=error.code, param="tokenizer") from error
        return from_gguf(_engine.GgufFile(str(path)).metadata()) if path.is_file() else from_folder(path)
    if checkpoint.is_gguf:
        return from_gguf(checkpoint.metadata)
    if args.weights is not None and checkpoint.path == Path():
        return None
    return from_folder(checkpoint.path)


def _empty_table(vocab_size: int) -> _engine.TokenTable:
    """No text for any token."""
    import numpy as np

    return _engine.TokenTable(b"", np.zeros(vocab_size + 1, np.uint32), np.zeros(vocab_size, np.uint8), False)


def _shutdown(engine: _engine.Engine, pid: int, waiting: list[int]) -> None:
    if os.getpid() != pid:  # a forked child has no engine thread to join
        return
    engine.shutdown()  # its last deltas end every wait
    deadline = time.monotonic() + _LEAVE_SECONDS
    while any(thread != threading.get_ident() for thread in list(waiting)) and time.monotonic() < deadline:
        time.sleep(0.002)
