"""langchain_tests' own suites. They assert little (ignoring stop passes): tests/integrations says more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from chatlocal import ChatLocal, Engine
from chatlocal.engine.shared import shared_engine
from tests.tiny import save_tiny


class TestUnit(ChatModelUnitTests):
    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatLocal

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "HuggingFaceTB/SmolLM2-135M-Instruct"}

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        return {"CHATLOCAL_MODEL": "some/where"}, {}, {"model": "some/where"}

    @property
    def has_tool_calling(self) -> bool:
        return True

    @pytest.fixture(autouse=True)
    def _allowed_to_load(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """test_serdes loads what langchain_core lists, and no one else's classes: put ours on the list."""
        listing = sys.modules["langchain_core.load.load"]
        monkeypatch.setitem(listing.ALL_SERIALIZABLE_MAPPINGS, tuple(ChatLocal.lc_id()), tuple(ChatLocal.lc_id()))
        monkeypatch.setattr(listing, "_default_class_paths_cache", {})


class TestIntegration(ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _embedded(self, request: pytest.FixtureRequest, embedded_engine: Engine) -> None:
        name = request.node.name
        # For most of the tests a few tokens show as much as many. A call must come to its end, and so must a structured
        # answer, where a small model that decodes greedily may repeat itself for ever; in calls it has to.
        limits: dict[str, Any] = {"max_tokens": 8}
        if "structured" in name or "json" in name:
            limits = {"max_tokens": 100, "repetition_penalty": 1.1}
        elif "tool" in name or "agent" in name:
            limits = {"max_tokens": 64}
        self.settings = {"engine": embedded_engine, "timeout": 250, **limits}

    @pytest.fixture(autouse=True)
    def _another_model(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[None]:
        """A folder of the name that the tests of `model=` ask for."""
        if not request.node.name.endswith("_with_model_override"):
            yield
            return
        save_tiny(tmp_path / self.model_override_value)
        monkeypatch.chdir(tmp_path)
        yield
        shared_engine(self.model_override_value).close()

    @property
    def chat_model_class(self) -> type[BaseChatModel]:
        return ChatLocal

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return self.settings

    @property
    def has_tool_calling(self) -> bool:
        return True

    @property
    def supports_json_mode(self) -> bool:
        return True

    @property
    def supports_model_override(self) -> bool:
        return True

    @property
    def model_override_value(self) -> str:
        return "tiny-model"
