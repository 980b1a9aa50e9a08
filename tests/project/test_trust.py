"""Nothing of a model or of a request is ever run as code."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from octavo.engine_args import EngineArgs
from octavo.errors import OctavoError
from octavo.loading import load

ROOT = Path(__file__).parents[2]
SOURCES = sorted(p for top in ("python", "gateway", "bench") for p in (ROOT / top).rglob("*.py"))
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "runpy"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__"}
UNSAFE_NAMES = {"unsafe_load", "allow_pickle"}


def unsafe(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [node.module or ""] if (node.module or "").split(".")[0] in UNSAFE_MODULES else []
        elif isinstance(node, ast.Call):
            name = node.func
            if isinstance(name, ast.Name) and name.id in UNSAFE_CALLS:
                found.append(name.id)
            attribute = name.attr if isinstance(name, ast.Attribute) else ""
            owner = ast.unparse(name.value) if isinstance(name, ast.Attribute) else ""
            if attribute in UNSAFE_NAMES or (owner, attribute) in (("torch", "load"), ("yaml", "load")):
                found.append(ast.unparse(name))
            for k in node.keywords:
                if k.arg in UNSAFE_NAMES or (
                    k.arg == "trust_remote_code"
                    and not (isinstance(k.value, ast.Constant) and k.value.value is False)
                ):
                    found.append(str(k.arg))
    return found


def test_no_source_unpickles_or_evaluates() -> None:
    assert len(SOURCES) > 100
    assert {str(p.relative_to(ROOT)): u for p in SOURCES if (u := unsafe(ast.parse(p.read_text())))} == {}


def test_pickled_weights_and_code_beside_a_model_are_left_alone(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (trap,)  # type: ignore[return-value]

    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "auto_map": {"AutoConfig": "trap.Trap"},'
        ' "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,'
        ' "vocab_size": 32, "max_position_embeddings": 64}'
    )
    (folder / "trap.py").write_text(f"open({str(trap)!r}, 'w')")
    for name in ("pytorch_model.bin", "model.pt", "model.safetensors.pkl"):
        (folder / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(OctavoError, match="safetensors"):
        load(EngineArgs(str(folder)))
    assert not trap.exists()
