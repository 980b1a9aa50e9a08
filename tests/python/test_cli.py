"""The command line: discovery, help, errors."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.cli import discovery, main
from octavo.cli.model_flags import add_model_flags, engine_args, memory_size
from octavo.errors import OctavoError

OWN = ["chat", "generate", "info", "pull"]


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    code = "import sys; from octavo.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_commands_come_from_the_project() -> None:
    names = discovery.command_names()
    assert set(OWN) <= set(names)
    assert names["pull"] == "octavo.cli.pull:command"
    project = Path(discovery.__file__).parents[3] / "pyproject.toml"
    assert discovery._of_source_tree(project) == names
    assert discovery._of_source_tree(Path("/nowhere/pyproject.toml")) == {}


@pytest.mark.parametrize("name", OWN)
def test_every_flag_is_documented(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = discovery.load(name, discovery.command_names()[name])
    parser = argparse.ArgumentParser()
    command.configure(parser)
    for action in parser._actions:
        assert action.help, action
    assert main([name, "--help"]) == 0
    assert f"octavo {name}" in capsys.readouterr().out


def test_overview_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in OWN)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("octavo 0.")
    assert main([]) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fly"], "no command 'fly'"),
        (["pull", "no-such-model"], "no-such-model"),
        (["pull", "--fast"], "--fast"),
        (["info", "/no/such/model.gguf"], "/no/such/model.gguf"),
        (["generate", "--max-model-len", "x"], "max-model-len"),
        (["generate", "--kv-cache-memory", "lots"], "lots"),
        (["generate", "--block-size", "12", "--prompt", "x"], "block_size"),
        (["generate", "--chat-template", "/no/such.jinja", "--prompt", "x"], "/no/such.jinja"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert says in err.splitlines()[-1]
    assert "Traceback" not in err


def test_a_command_that_cannot_be_loaded() -> None:
    with pytest.raises(OctavoError, match="no_such_module"):
        discovery.load("x", "no_such_module:command")
    with pytest.raises(OctavoError, match="not a Command"):
        discovery.load("x", "octavo.cli.main:main")


def test_pull_prints_the_path(smollm2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull"]) == 0
    assert capsys.readouterr().out.strip() == str(smollm2)


def test_flags_become_engine_arguments() -> None:
    parser = argparse.ArgumentParser()
    add_model_flags(parser)
    args = engine_args(parser.parse_args([]))
    assert args.model == "smollm2" and args.enable_prefix_caching and args.enable_chunked_prefill
    flags = ["m", "--kv-cache-memory", "1.5GiB", "--no-prefix-caching", "--max-num-seqs", "4", "--offline"]
    args = engine_args(parser.parse_args(flags))
    assert (args.model, args.kv_cache_memory, args.enable_prefix_caching) == ("m", 3 << 29, False)
    assert args.max_num_seqs == 4 and args.offline


def test_defaults_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCTAVO_THREADS", "3")
    monkeypatch.setenv("OCTAVO_CACHE", "/c")
    parser = argparse.ArgumentParser()
    add_model_flags(parser)
    args = engine_args(parser.parse_args([]))
    assert args.threads == 3 and args.cache_dir == "/c"
    monkeypatch.setenv("OCTAVO_THREADS", "many")
    assert main(["generate"]) == 2
    assert "OCTAVO_THREADS" in capsys.readouterr().err


def test_sizes() -> None:
    good = {"1": 1, "2k": 2000, "500M": 500 * 10**6, "2GiB": 2 << 30, "1.5 gib": 3 << 29, "1TB": 10**12}
    for text, want in good.items():
        assert memory_size(text) == want
    for text in ("", "x", "-1", "1ib", "1e9", "1 Q"):
        with pytest.raises(argparse.ArgumentTypeError):
            memory_size(text)
