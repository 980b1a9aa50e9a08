"""The flags of ``octavo bench serve``: those of ``vllm bench serve`` under their names, and what it lacks."""

from __future__ import annotations

import argparse
import json
from typing import Any

from octavo_bench.datasets.dataset import NAMES

BACKENDS = ("openai", "vllm", "openai-chat")


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


_object.__name__ = "JSON object"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds every flag."""
    _server(parser.add_argument_group("server"))
    _dataset(parser.add_argument_group("dataset"))
    _traffic(parser.add_argument_group("traffic"))
    _search(parser.add_argument_group("several runs"))
    _sampling(parser.add_argument_group("sampling"))
    _output(parser.add_argument_group("results"))


def _server(add: Any) -> None:
    flag = add.add_argument
    flag(
        "--backend",
        default="openai",
        choices=BACKENDS,
        help="openai-chat: chat completions; else completions",
    )
    flag(
        "--base-url",
        nargs="+",
        metavar="URL",
        help="server, or several to measure in turn; default: host and port",
    )
    flag("--host", default="127.0.0.1", help="server's address without --base-url")
    flag("--port", type=int, default=8000, help="its port")
    flag("--endpoint", help="path; default: /v1/completions, or /v1/chat/completions for openai-chat")
    flag(
        "--model",
        nargs="+",
        metavar="NAME",
        help="model, or one per URL; default: the first that the server lists",
    )
    flag("--served-model-name", metavar="NAME", help="name to send, where --model names something else")
    flag("--api-key", help="key, sent as a bearer token")
    flag("--header", nargs="*", metavar="KEY=VALUE", default=[], help="headers of each request")
    flag("--insecure", action="store_true", help="accept any certificate")
    flag("--extra-body", type=_object, metavar="JSON", help="further fields of each request")
    flag(
        "--ready-check-timeout-sec",
        type=float,
        default=0.0,
        help="wait so long for a server that is starting",
    )
    flag("--request-timeout", type=float, default=600.0, help="seconds after which a request has failed")


def _dataset(add: Any) -> None:
    flag = add.add_argument
    flag(
        "--dataset-name",
        default="random",
        choices=NAMES,
        help="what to ask for; timed_trace: a file of lengths",
    )
    flag("--dataset-path", metavar="FILE", help="file of sharegpt, custom and the traces")
    flag("--num-prompts", type=int, default=1000, help="requests of one run")
    flag("--seed", type=int, default=0, help="seed of prompts, lengths and arrival times")
    flag("--input-len", "--random-input-len", "--prefix-repetition-suffix-len", type=int, default=1024,
         help="prompt tokens of synthetic datasets; without what is shared")  # fmt: skip
    flag("--output-len", "--random-output-len", "--sharegpt-output-len", "--custom-output-len",
         "--prefix-repetition-output-len", type=int,
         help="output tokens; default: the file's, 256 for custom, 128 for synthetic datasets")  # fmt: skip
    flag("--random-range-ratio", type=float, default=0.0, help="lengths vary by this share, up and down")
    flag("--random-prefix-len", type=int, default=0, help="tokens that all random prompts begin with")
    flag("--prefix-repetition-prefix-len", type=int, default=256, help="tokens shared within a group")
    flag("--prefix-repetition-num-prefixes", type=int, default=10, help="groups")
    flag("--prefix-repetition-zipf", type=float, default=0.0,
         help="popularity of group k is 1/k to this power; 0: all alike")  # fmt: skip
    flag("--multi-turn-turns", type=int, default=4, help="requests of a conversation")
    flag("--multi-turn-prefix-len", type=int, default=0, help="tokens that all conversations begin with")
    flag(
        "--multi-turn-think-s", type=float, default=0.0, help="pause between an answer and the next question"
    )
    flag("--max-input-len", type=int, help="leave out requests of a file that are longer")
    flag("--max-output-len", type=int, help="cut outputs of a file to this")
    flag(
        "--no-oversample",
        action="store_true",
        help="do not repeat a file with fewer requests than --num-prompts",
    )
    flag("--vocab-size", type=int, default=10_000, help="random token ids are below this")
    flag(
        "--tokenizer", metavar="MODEL", help="counts the tokens of a file's texts; default: 4 characters each"
    )
    for name in ("--tokenizer-mode", "--skip-tokenizer-init", "--trust-remote-code"):
        kind: dict[str, Any] = {"metavar": "NAME"} if name.endswith("mode") else {"action": "store_true"}
        flag(name, help="taken for vLLM's sake, changes nothing", **kind)


def _traffic(add: Any) -> None:
    flag = add.add_argument
    flag("--request-rate", type=float, default=float("inf"), help="requests per second; inf: all at once")
    flag("--burstiness", type=float, default=1.0,
         help="gamma shape of the gaps: 1 Poisson, below 1 in bursts, above 1 more even")  # fmt: skip
    flag("--ramp-up-strategy", choices=("linear", "exponential"), help="change the rate over the run")
    flag("--ramp-up-start-rps", type=float, help="first rate")
    flag("--ramp-up-end-rps", type=float, help="last rate")
    flag("--self-timed", action=argparse.BooleanOptionalAction,
         help="send at the trace's times; default: where the dataset has times and no rate is given")  # fmt: skip
    flag("--time-scale", type=float, default=1.0, help="replay a trace so many times as fast")
    flag("--max-concurrency", type=int, help="most requests under way at once")
    flag("--cancel-share", type=float, default=0.0, help="share of requests whose client hangs up")
    flag("--cancel-after", type=int, default=8, help="after so many chunks")
    flag("--slow-reader-share", type=float, default=0.0, help="share of requests whose client reads slowly")
    flag("--slow-reader-rate", type=float, default=5.0, help="chunks per second it reads")
    flag("--num-warmups", type=int, default=0, help="requests sent before the run, not measured")
    flag(
        "--warmup-cut-s",
        type=float,
        default=0.0,
        help="leave out what is due in the first seconds of the run",
    )
    flag("--processes", type=int, default=1, help="client processes")


def _search(add: Any) -> None:
    flag = add.add_argument
    flag("--rounds", type=int, default=1, help="repeat everything, server after server")
    flag("--sweep-request-rate", nargs="+", type=float, metavar="X", help="a run at each of these rates")
    flag("--sweep-max-concurrency", nargs="+", type=int, metavar="N", help="a run at each of these limits")
    flag("--search-rate", action="store_true", help="find the highest rate that meets --goodput")
    flag("--search-start", type=float, default=1.0, help="first rate tried")
    flag("--search-share", type=float, default=0.99, help="share of requests that must be good")
    flag("--search-tolerance", type=float, default=0.05, help="how close to the limit")
    flag("--search-trials", type=int, default=14, help="most runs")


def _sampling(add: Any) -> None:
    flag = add.add_argument
    penalties = ("--frequency-penalty", "--presence-penalty", "--repetition-penalty")
    for name in ("--temperature", "--top-p", "--top-k", "--min-p", *penalties):
        kind = int if name == "--top-k" else float
        flag(name, type=kind, help="sent with each request; default: the server's")
    flag("--logprobs", type=int, help="ask for so many logprobs per token")
    flag("--ignore-eos", action=argparse.BooleanOptionalAction,
         help="send ignore_eos; default: with synthetic datasets and traces")  # fmt: skip


def _output(add: Any) -> None:
    flag = add.add_argument
    flag("--goodput", nargs="+", metavar="METRIC:MS", help="limits of a good answer: ttft, tpot, e2el")
    flag("--percentile-metrics", default="ttft,tpot,itl,e2el,scheduled_e2el,client_queue_time",
         help="latencies to show, also e2el_including_client_queue")  # fmt: skip
    flag("--metric-percentiles", default="90,99", help="percentiles to show")
    flag("--save-result", action="store_true", help="write a JSON file")
    flag("--save-detailed", action="store_true", help="with an entry per request")
    flag("--append-result", action="store_true", help="as a further line of the file")
    flag("--result-dir", metavar="FOLDER", help="folder of the JSON file")
    flag("--result-filename", metavar="NAME", help="its name; default: label, rate, model if given, and time")
    flag("--label", help="first part of that name; default: the backend")
    flag("--metadata", nargs="*", metavar="KEY=VALUE", default=[], help="further keys of the JSON")
    flag("--plot", metavar="FILE.png", help="draw the result; needs the package matplotlib")
    flag("--scrape-interval", type=float, default=1.0, help="seconds between reads of /metrics; 0: never")
    flag("--metrics-url", metavar="URL", help="where; default: /metrics of the server")
    flag("--disable-tqdm", action="store_true", help="no progress bar")
