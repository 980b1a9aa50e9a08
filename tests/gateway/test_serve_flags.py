"""What the flags of `octavo serve` mean, without a server."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

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
