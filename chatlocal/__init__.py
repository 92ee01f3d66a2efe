"""Open chat models behind LangChain's BaseChatModel and LlamaIndex's LLM, in your own process."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatlocal.engine import Engine as Engine
    from chatlocal.integrations.langchain import ChatLocal as ChatLocal
    from chatlocal.integrations.llama_index import LocalLLM as LocalLLM

__version__ = "0.1.0"

__all__ = ["ChatLocal", "Engine", "LocalLLM", "__version__"]

# torch and the frameworks take seconds to import, so each name is fetched when it is first used.
_HOMES = {
    "ChatLocal": "chatlocal.integrations.langchain",
    "Engine": "chatlocal.engine",
    "LocalLLM": "chatlocal.integrations.llama_index",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
