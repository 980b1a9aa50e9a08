"""Clients that others wrote, against the server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from served import Served

from conftest import HERE, MODEL, Judges

pytestmark = pytest.mark.slow


def problems(output: str, least: int) -> list[str]:
    """What went wrong, of the checks that a client's program tells line by line."""
    checks = [
        json.loads(line.removeprefix("CHECK ")) for line in output.splitlines() if line.startswith("CHECK ")
    ]
    assert len(checks) >= least, output
    return [f"{name} ({client}): {problem}" for name, client, problem in checks if problem]


def test_openai_node(judges: Judges, tiny: Served, tmp_path: Path) -> None:
    """Behaviour 55 among others."""
    judges.need("node_modules/openai")
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = str(HERE / "openai_client.mjs")
    done = judges.run(
        [node, script, str(judges.folder), f"http://127.0.0.1:{tiny.port}/v1", MODEL], tmp_path, 120
    )
    assert not problems(done.stdout, 14)


def test_ai_sdk(judges: Judges, default: Served, tmp_path: Path) -> None:
    """Behaviours 71 and 72: calls, whole and streamed, a loop over two tools, an object."""
    judges.need("node_modules/ai")
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    script = str(HERE / "ai_sdk_client.mjs")
    done = judges.run(
        [node, script, str(judges.folder), f"http://127.0.0.1:{default.port}/v1", MODEL], tmp_path, 120
    )
    assert not problems(done.stdout, 5)


def test_litellm(judges: Judges, tiny: Served, tmp_path: Path) -> None:
    judges.need("py/bin/litellm")
    done = judges.run(
        [str(judges.bin / "python"), str(HERE / "litellm_client.py")],
        tmp_path,
        200,
        JUDGED_URL=f"http://127.0.0.1:{tiny.port}/v1",
        JUDGED_MODEL=MODEL,
    )
    assert not problems(done.stdout, 14)


def test_langchain_standard_tests(judges: Judges, default: Served, tmp_path: Path) -> None:
    """What it skips asks for images, audio or PDF, or more of a model than the default one knows."""
    judges.need("py/lib")
    if not list(judges.folder.glob("py/lib/python*/site-packages/langchain_tests")):
        pytest.skip("langchain-tests is not installed: run `make judges`")
    shutil.copy(HERE / "langchain_standard.py", tmp_path / "test_langchain_standard.py")
    done = judges.run(
        [
            *(
                str(judges.bin / "python"),
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "--junit-xml=out.xml",
            ),
            *("-o", "asyncio_mode=auto", "-o", "asyncio_default_test_loop_scope=session"),
            "test_langchain_standard.py",
        ],
        tmp_path,
        200,
        JUDGED_URL=f"http://127.0.0.1:{default.port}/v1",
        JUDGED_MODEL=MODEL,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    cases = ElementTree.parse(tmp_path / "out.xml").findall(".//testcase")
    assert len([case for case in cases if case.find("skipped") is None]) >= 35


def test_guidellm(judges: Judges, tiny: Served, tiny_folder: Path, tmp_path: Path) -> None:
    """A load client: every request succeeds, and the tokens it counts are those it asked for."""
    judges.need("py/bin/guidellm")
    done = judges.run(
        [
            *(str(judges.bin / "guidellm"), "run", "--disable-console-interactive"),
            *("--backend", f"kind=openai_http,target=http://127.0.0.1:{tiny.port},model={MODEL}"),
            *("--profile", "kind=concurrent,streams=8", "--constraint", "kind=max_requests,count=40"),
            *("--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16"),
            *("--tokenizer", f"kind=hf_auto,model={tiny_folder}"),
            *("--output", f"kind=json,path={tmp_path / 'out.json'}"),
        ],
        tmp_path,
        200,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    (benchmark,) = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    requests = benchmark["requests"]
    assert len(requests["successful"]) == 40 and not requests["errored"]
    assert {r["output_tokens"] for r in requests["successful"]} == {16}
