"""Imports point one way, are absolute, and cost nothing until a name is used. Read from the source, file by file."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "chatlocal").rglob("*.py"))

FRAMEWORKS = {
    "langchain",
    "langchain_classic",
    "langchain_core",
    "langchain_text_splitters",
    "langgraph",
    "langsmith",
    "llama_index",
    "llama_index_instrumentation",
    "workflows",
}
HEAVY = {"torch", "transformers", "langchain_core", "llama_index"}


@dataclass(frozen=True)
class Layer:
    """What a part of the package may import: of the package, of the frameworks, and (`only`) of all other libraries."""

    package: tuple[str, ...]
    frameworks: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None


VALUES = ("chatlocal.engine.messages", "chatlocal.engine.events", "chatlocal.engine.errors")
LANGCHAIN = ("langchain_core", "langsmith")
LLAMA_INDEX = ("llama_index", "llama_index_instrumentation")

# The longest prefix of a module's name decides: whole parts of the name, or any beginning where a `*` follows.
LAYERS = {
    "chatlocal": Layer(("chatlocal",), only=()),
    "chatlocal.engine": Layer(("chatlocal.engine",)),
    "chatlocal.engine.errors": Layer((), only=()),
    "chatlocal.engine.messages": Layer(VALUES, only=()),
    "chatlocal.engine.events": Layer(VALUES, only=()),
    "chatlocal.engine.runtime": Layer(
        (*VALUES, "chatlocal.engine.runtime", "chatlocal.engine.constraints"), only=("torch", "transformers")
    ),
    "chatlocal.engine.constraints": Layer((*VALUES, "chatlocal.engine.constraints")),
    "chatlocal.engine.tokenizers": Layer((*VALUES, "chatlocal.engine.tokenizers")),
    "chatlocal.engine.families": Layer((*VALUES, "chatlocal.engine.families", "chatlocal.engine.tokenizers")),
    "chatlocal.engine.toolcalls": Layer((*VALUES, "chatlocal.engine.toolcalls", "chatlocal.engine.constraints")),
    "chatlocal.extractors": Layer(("chatlocal.engine", "chatlocal.extractors"), frameworks=LANGCHAIN),
    # A chain is a LangChain Runnable; the package resolves its names lazily.
    "chatlocal.extractors.structured_output": Layer(("chatlocal.engine", "chatlocal.extractors"), frameworks=LANGCHAIN),
    # A step of LlamaIndex's ingestion pipelines; nothing else there knows that framework.
    "chatlocal.extractors.extractor_transform": Layer(
        ("chatlocal.engine", "chatlocal.extractors"), frameworks=LLAMA_INDEX
    ),
    "chatlocal.integrations": Layer(("chatlocal.engine",)),
    "chatlocal.integrations.langchain*": Layer(
        ("chatlocal.engine", "chatlocal.integrations.langchain*"), frameworks=LANGCHAIN
    ),
    "chatlocal.integrations.llama_index*": Layer(
        ("chatlocal.engine", "chatlocal.integrations.llama_index*"), frameworks=LLAMA_INDEX
    ),
}


@dataclass(frozen=True)
class Import:
    """`import module` or one name of `from module import name`, anywhere in a file."""

    module: str
    name: str | None
    line: int
    relative: bool = False


def imports_of(source: str) -> list[Import]:
    found: list[Import] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module, relative = node.module or "", node.level > 0
            found.extend(Import(module, alias.name, node.lineno, relative) for alias in node.names)
    return found


def module_name(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def within(module: str, prefixes: tuple[str, ...]) -> bool:
    return any(
        module.startswith(prefix[:-1]) if prefix.endswith("*") else f"{module}.".startswith(f"{prefix}.")
        for prefix in prefixes
    )


def layer_of(module: str) -> Layer:
    return LAYERS[max((prefix for prefix in LAYERS if within(module, (prefix,))), key=len)]


def fault(imported: Import, layer: Layer) -> str | None:
    """Which rule an import breaks."""
    top = imported.module.partition(".")[0]
    if imported.relative:
        return "imports are absolute"
    if top in {"engine", "integrations", "extractors"}:
        return f"the link at the top level is a second copy of chatlocal.{top}"
    if top == "chatlocal":
        # The name may be a module: `from chatlocal.engine import events` needs the right to chatlocal.engine.events.
        if within(imported.module, layer.package) or within(f"{imported.module}.{imported.name}", layer.package):
            return None
        return f"of the package, this layer knows only {layer.package}"
    if top in FRAMEWORKS:
        return None if top in layer.frameworks else "not this layer's framework"
    if layer.only is None or top in sys.stdlib_module_names or top in layer.only:
        return None
    return f"of libraries, this layer knows only {layer.only}"


def faults(file: str, source: str) -> list[str]:
    """What in a file breaks the rules, one line each."""
    layer = layer_of(module_name(file))
    found = [(imported, fault(imported, layer)) for imported in imports_of(source)]
    return [f"{file}:{at.line} imports {at.module} {at.name or ''}: {problem}" for at, problem in found if problem]


@pytest.mark.parametrize("file", FILES)
def test_imports_point_one_way(file: str) -> None:
    assert faults(file, (ROOT / file).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("chatlocal/engine/loading.py", "from chatlocal.integrations.langchain import ChatLocal"),
        ("chatlocal/engine/loading.py", "def f():\n    import langchain_core.messages"),
        ("chatlocal/engine/loading.py", "from . import errors"),
        ("chatlocal/engine/loading.py", "from engine import errors"),
        ("chatlocal/engine/runtime/runner.py", "from chatlocal.engine import families"),
        ("chatlocal/engine/runtime/runner.py", "from chatlocal.engine import errors, families"),
        ("chatlocal/engine/runtime/runner.py", "from chatlocal.engine.parse import Parser"),
        ("chatlocal/engine/runtime/runner.py", "import jinja2"),
        ("chatlocal/engine/messages.py", "import torch"),
        ("chatlocal/integrations/langchain.py", "from chatlocal.extractors import Extractor"),
        ("chatlocal/integrations/langchain.py", "from llama_index.core.llms import LLM"),
        ("chatlocal/integrations/llama_index.py", "import chatlocal.integrations.langchain"),
        ("chatlocal/integrations/llama_index_chat.py", "from chatlocal.integrations import langchain_messages"),
        ("chatlocal/extractors/chain.py", "def f():\n    from llama_index.core import Document"),
    ],
)
def test_a_wrong_import_is_seen(file: str, source: str) -> None:
    assert faults(file, source) != []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("chatlocal/engine/loading.py", "import torch\nfrom chatlocal.engine import errors"),
        ("chatlocal/engine/runtime/runner.py", "from chatlocal.engine import events"),
        ("chatlocal/integrations/langchain.py", "from langchain_core.messages import AIMessage"),
        ("chatlocal/integrations/langchain.py", "from chatlocal.integrations.langchain_messages import read"),
        ("chatlocal/extractors/chain.py", "from langchain_core.prompts import PromptTemplate"),
    ],
)
def test_a_right_import_is_let_through(file: str, source: str) -> None:
    assert faults(file, source) == []


@pytest.mark.parametrize(
    "statement",
    ["import chatlocal", "import chatlocal.engine", "import chatlocal.integrations", "import chatlocal.extractors"],
)
def test_a_package_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement).isdisjoint(HEAVY)


def test_the_engine_loads_no_framework() -> None:
    loaded = loaded_by("from chatlocal import Engine")
    assert "torch" in loaded
    assert loaded.isdisjoint(FRAMEWORKS)


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after a statement."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()}
