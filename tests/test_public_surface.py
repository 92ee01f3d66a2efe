"""The names that users import. A change here is a change for them: it belongs in the changelog."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import chatlocal

SURFACE = {
    "chatlocal": ["ChatLocal", "Engine", "LocalLLM", "__version__"],
    "chatlocal.engine": [
        "CallDelta",
        "CallInvalid",
        "CallStart",
        "ChatMessage",
        "Engine",
        "Event",
        "Finish",
        "Image",
        "InvalidCall",
        "Reasoning",
        "Reply",
        "Sampling",
        "Text",
        "Tool",
        "ToolCall",
        "Usage",
        "collect",
    ],
    "chatlocal.extractors": [
        "Bool",
        "DocumentFiles",
        "Extractor",
        "Number",
        "Object",
        "Option",
        "Selection",
        "Text",
        "create_extraction_chain",
        "create_structured_output_chain",
        "extract_documents",
        "extract_from_documents",
        "from_pydantic",
        "write_report",
    ],
}
NAMES = [(module, name) for module, names in SURFACE.items() for name in names]


def test_the_package_under_test_stands_beside_the_tests() -> None:
    """In a checkout that is the checkout's; in the folder that holds the installed wheel it is the wheel's."""
    assert Path(chatlocal.__file__).parent.parent == Path(__file__).parent.parent


@pytest.mark.parametrize("module", SURFACE)
def test_the_public_names_are_these(module: str) -> None:
    public = import_module(module).__all__
    assert public == SURFACE[module]
    assert public == sorted(public)


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_public_name_resolves(module: str, name: str) -> None:
    package = import_module(module)
    assert getattr(package, name) is not None
    assert name in dir(package)


@pytest.mark.parametrize("module", SURFACE)
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'ChatRemote'"):
        _ = import_module(module).ChatRemote
