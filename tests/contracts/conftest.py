"""Which of the frameworks' own tests are long runs: those that repeat another one in its async or v1 form."""

from __future__ import annotations

import pytest

_TWINS = ("test_structured_output_async", "test_tool_calling_async")
_FORMS = ("[typeddict]", "[model1]")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        inherited = "test_langchain_standard.py::TestIntegration" in item.nodeid
        if inherited and (item.name.startswith(_TWINS) or item.name.endswith(_FORMS)):
            item.add_marker(pytest.mark.evaluate)
