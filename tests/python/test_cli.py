"""The command line: discovery, help, errors."""

from __future__ import annotations

import argparse
import os
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
    project = Path(__file__).parents[2] / "pyproject.toml"
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
        (["fly"], "no command 'fly'; there are"),
        (["bench", "kernels", "--only", "zzz"], "matches no kernel; there are attention, linear"),
        (["sevre"], "did you mean serve?"),
        (["generate", "--max-token", "4"], "there is no flag --max-token (did you mean --max-tokens?)"),
        (["serve", "--prot=1"], "octavo serve: error: there is no flag --prot (did you mean --port?)"),
        (["serve", "--nope"], "there is no flag --nope; see octavo serve --help"),
        (["info", "a", "b"], "unexpected argument 'b'; see octavo info --help"),
        (["bench", "kernels", "--thread", "1"], "did you mean --threads?"),
        (["bench", "step", "--budget", "1"], "there is no flag --budget; see octavo bench --help"),
        (["bench", "step", "--isa", "avx1024"], "avx1024"),
        (["serve", "--tensor-parallel-size", "2"], "--tensor-parallel-size must be 1"),
        (["info", "--max-model-len", "9000000"], "--max-model-len must be at most 8192"),
        (["pull", "no-such-model"], "no-such-model"),
        (["pull", "--fast"], "--fast"),
        (["info", "/no/such/model.gguf"], "/no/such/model.gguf"),
        (["generate", "--max-model-len", "x"], "max-model-len"),
        (["generate", "--kv-cache-memory", "lots"], "lots"),
        (["generate", "--block-size", "12", "--prompt", "x"], "error: --block-size must"),
        (["info", "--kv-cache-memory", "500TiB"], str(500 << 40)),
        (["generate", "--chat-template", "/no/such.jinja", "--prompt", "x"], "/no/such.jinja"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.splitlines()) == 1


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


SMALL = ["--max-model-len", "256", "--kv-cache-memory", "32MiB"]


def test_generate(smollm2: Path) -> None:
    flags = [*SMALL, "--temperature", "0", "--max-tokens", "4"]
    streamed = run("generate", "--prompt", "The capital of France is", *flags)
    assert streamed.returncode == 0 and streamed.stdout.startswith(" Paris"), streamed.stderr
    whole = run("generate", "--no-stream", *flags, stdin="The capital of France is\n")
    assert whole.stdout == streamed.stdout


@pytest.mark.slow
def test_generate_with_a_system_prompt_and_a_stop(smollm2: Path) -> None:
    flags = [*SMALL, "--temperature", "0", "--max-tokens", "4"]
    chat = run("generate", "--system", "You count.", "--prompt", "Count to three.", *flags, "--stop", " ")
    assert chat.returncode == 0 and " " not in chat.stdout.rstrip("\n")


@pytest.mark.slow
def test_generate_refuses_with_one_line(smollm2: Path) -> None:
    for arguments, says in (
        (["--prompt", "a " * 400], "Shorten the prompt or raise --max-model-len, which may be up to 8192."),
        (["--prompt", "a", "--top-p", "2"], "--top-p must"),
        ([], "empty"),
    ):
        done = run("generate", *SMALL, *arguments)
        assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr
        assert done.stderr.startswith("octavo: error: ") and done.stderr.count("\n") == 1


def test_chat_remembers_until_told_to_forget(smollm2: Path) -> None:
    talk = "My name is Ada.\n\nWhat is my \\\nname?\n/help\n/clear\nSay hi.\n/exit\nnever read\n"
    done = run(
        "chat", *SMALL, "--temperature", "0", "--max-tokens", "12", "--system", "Be brief.", stdin=talk
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
    assert "Ada" in done.stdout
    assert "/clear starts over" in done.stderr


@pytest.mark.slow
def test_a_chat_goes_on_after_a_message_that_is_too_long(smollm2: Path) -> None:
    done = run("chat", *SMALL, "--max-tokens", "4", stdin="a " * 400 + "\nHi\n")
    assert done.returncode == 0 and "(error: " in done.stderr and done.stdout.strip()


def test_info(smollm2: Path) -> None:
    import json

    text = run("info", *SMALL).stdout
    for part in (
        "llama",
        "q4_1 x 210",
        "8,192 tokens",
        "23,040 bytes",
        "1,456 tokens fit",
        "threads",
        str(smollm2),
    ):
        assert part in text, text
    facts = json.loads(run("info", "--json", "--no-load").stdout)
    assert (
        facts["architecture"] == "llama" and facts["kv_bytes_per_token"] == 23040 and "threads" not in facts
    )


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(smollm2: Path) -> None:
    code = "import sys; from octavo.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "generate", "-p", "Count:", "--max-tokens", "200", *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(60) == 0, process.stderr.read()
        assert process.stderr.read() == b""


SHORT = f"--max-tokens 5 --temperature 0 {' '.join(SMALL)}"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        pytest.param(
            f"generate -p Count {SHORT} > /dev/full",
            "standard output cannot be written: No space left on device",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            f"echo Hi | octavo chat {SHORT} > /dev/full",
            "standard output cannot be written: No space left on dev",
            marks=pytest.mark.slow,
        ),
        ("info --no-load > /dev/full", "standard output cannot be written: No space left on device"),
        (f"generate {SHORT} <&-", "standard input is closed"),
        pytest.param(f"chat {SHORT} <&-", "standard input is closed", marks=pytest.mark.slow),
        pytest.param(
            f"generate {SHORT} 0> /dev/null",
            "standard input cannot be read: Bad file descriptor",
            marks=pytest.mark.slow,
        ),
        (
            f"printf '\\377' | octavo generate {SHORT}",
            "standard input cannot be read: 'utf-8' codec can't decode",
        ),
        pytest.param(
            f"printf '\\377' | octavo chat {SHORT}",
            "standard input cannot be read: 'utf-8' codec can't decode",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_streams_that_cannot_be_used_are_told_in_one_line(smollm2: Path, command: str, says: str) -> None:
    done = shell(command if "octavo" in command else f"octavo {command}", PYTHONIOENCODING="utf-8")
    *notes, error = done.stderr.splitlines()
    assert done.returncode == 2 and error.startswith(f"octavo: error: {says}"), done.stderr
    assert all(note.startswith("(") for note in notes), done.stderr


@pytest.mark.slow
def test_what_the_terminal_cannot_show_is_replaced(smollm2: Path, tmp_path: Path) -> None:
    named = tmp_path / "本.gguf"
    named.symlink_to(smollm2)
    command = f"octavo info --no-load '{named}'"
    ascii, full = (shell(command, PYTHONIOENCODING=name).stdout for name in ("ascii", "utf-8"))
    assert "本" in full and ascii == full.encode("ascii", "replace").decode()


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    octavo = f'octavo() {{ "{sys.executable}" -m octavo "$@"; }}; '
    return subprocess.run(
        ["sh", "-c", octavo + command],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def test_an_interrupt_ends_a_command(smollm2: Path) -> None:
    import signal

    code = "import sys; from octavo.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "generate", "-p", "Count:", *SMALL],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (0, 130)
        assert b"Traceback" not in process.stderr.read()
