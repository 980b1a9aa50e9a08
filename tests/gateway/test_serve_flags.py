"""What the flags of `octavo serve` mean, without a server."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from octavo.cli.model_flags import engine_args
from octavo.cli.vllm_flags import check_vllm_flags
from octavo.errors import InvalidArgumentError
from octavo_gateway.server.flags import add_flags, api_settings, take_model


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    flags = parser.parse_args(arguments)
    take_model(flags)
    return flags


def names(*arguments: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    settings = api_settings(parsed(*arguments))
    return settings.served_names, settings.other_names


def test_a_name_does_not_swallow_the_model() -> None:
    flags = parsed("--served-model-name", "mymodel", "/some/model.gguf")
    assert (flags.model, flags.served_model_name) == ("/some/model.gguf", ["mymodel"])
    flags = parsed("--served-model-name", "a", "--served-model-name", "b", "--model", "/some/model.gguf")
    assert (flags.model, flags.served_model_name) == ("/some/model.gguf", ["a", "b"])


def test_a_path_is_served_under_its_last_part(tmp_path: Path) -> None:
    file, folder = tmp_path / "Tiny.Q4_1.gguf", tmp_path / "Tiny-Instruct"
    file.touch()
    folder.mkdir()
    assert names(str(file)) == (("Tiny.Q4_1",), (str(file),))
    assert names(f"{folder}/") == (("Tiny-Instruct",), (f"{folder}/",))
    assert names("org/name")[0] == ("org/name",)
    assert names()[0] == ("smollm2",)
    assert names(str(file), "--served-model-name", "x") == (("x",), ())


def test_two_models_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="two models") as caught:
        parsed("/one", "--model", "/two")
    assert caught.value.param == "model"
    assert parsed("/one", "--model", "/one").model == "/one"
    with pytest.raises(InvalidArgumentError, match="--served-model-name"):
        parsed("--served-model-name", "")


@pytest.mark.filterwarnings("ignore:trust_remote_code")
def test_flags_of_vllm_that_ask_for_nothing() -> None:
    flags = parsed(
        *("m", "--tensor-parallel-size", "1", "--dtype", "bfloat16", "--swap-space", "4"),
        *("--trust-remote-code", "--enable-prefix-caching", "--enable-chunked-prefill", "--device", "cpu"),
        *("--download-dir", "/d", "--kv-cache-memory-bytes", "1GiB", "--cpu-offload-gb", "0"),
    )
    check_vllm_flags(flags)
    args = engine_args(flags)
    assert (args.cache_dir, args.kv_cache_memory, args.enable_prefix_caching) == ("/d", 1 << 30, True)
    assert not engine_args(parsed("--no-enable-prefix-caching")).enable_prefix_caching


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--tensor-parallel-size", "2"),
        ("--cpu-offload-gb", "4"),
    ],
)
def test_flags_of_vllm_that_ask_for_something(flag: str, value: str) -> None:
    with pytest.raises(InvalidArgumentError, match="got") as caught:
        check_vllm_flags(parsed(flag, value))
    assert caught.value.param == flag[2:].replace("-", "_")
