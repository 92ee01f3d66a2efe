"""Calling LocalLLM in tests: any endpoint alike, and the events that it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.base import BaseEvent
from llama_index_instrumentation import get_dispatcher

from chatlocal.integrations.llama_index import LocalLLM
from tests.scripted import Script, backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

HELLO = [ChatMessage(role="user", content="Hello")]
HELLO_PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

CHAT = ("chat", "achat", "stream_chat", "astream_chat")
COMPLETE = ("complete", "acomplete", "stream_complete", "astream_complete")
TOOL_CHAT = ("chat_with_tools", "achat_with_tools", "stream_chat_with_tools", "astream_chat_with_tools")
PATIENCE = 10.0  # seconds after which a wait that would last for ever fails its test

STREAMS = ("stream_chat", "astream_chat", "stream_complete", "astream_complete")

# The core looks at every attribute of an agent to find its steps, and asks its workflow what is deprecated there.
agents_look_at_all = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning", "ignore:is_running called from within a step"
)


async def ask(llm: Any, method: str, *args: Any, **kwargs: Any) -> list[Any]:
    """What a method gives, as a list: one whole answer or the items of a stream, sync or async."""
    answer = getattr(llm, method)(*args, **kwargs)
    if method.startswith("a"):
        answer = await answer
    if "stream" not in method:
        return [answer]
    return [item async for item in answer] if method.startswith("a") else list(answer)


def hello(endpoint: str) -> Any:
    """The same question for every endpoint."""
    return "Hello" if "complete" in endpoint else HELLO


def text_of(response: Any) -> str:
    """The text of a chat or completion response."""
    return str(response.text if hasattr(response, "text") else response.message.content)


def prompts(llm: LocalLLM) -> list[str]:
    """The prompts that reached the scripted backend, as text."""
    return [str(tiny_tokenizer().decode(request.prompt_ids)) for request in backend_of(llm.engine).requests]


def tool_llm(
    *answers: str | Script, words: bool = False, context_length: int = 8192, delay: float = 0.0, **settings: Any
) -> LocalLLM:
    """A model that was trained for tools and gives these answers in turn; its calls are lines, as Qwen-1 writes them.

    `words`: one that was not, and is told of tools in words; its calls stand in tags.
    """
    template = None if words else "qwen"
    engine = scripted_engine(*answers, delay=delay, context_length=context_length, template=template)
    return LocalLLM(engine=engine, **settings)


def tool_call(name: str, arguments: dict[str, Any], thought: str = "I need a tool.") -> str:
    """A call as Qwen-1 writes it."""
    return f"Thought: {thought}\nAction: {name}\nAction Input: {json.dumps(arguments)}"


def final_answer(text: str, thought: str = "I know the answer.") -> str:
    """An answer as Qwen-1 writes it where it might have called a tool."""
    return f"Thought: {thought}\nFinal Answer: {text}"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does."""

    async def turn() -> None:
        while not condition():
            await asyncio.sleep(0.001)

    await asyncio.wait_for(turn(), PATIENCE)


@contextmanager
def recorded_events() -> Iterator[list[Any]]:
    """The instrumentation events that are sent meanwhile."""
    events: list[Any] = []

    class Recorder(BaseEventHandler):
        def handle(self, event: BaseEvent, **kwargs: Any) -> None:
            events.append(event)

    dispatcher = get_dispatcher()
    handlers = list(dispatcher.event_handlers)
    dispatcher.add_event_handler(Recorder())
    try:
        yield events
    finally:
        dispatcher.event_handlers = handlers
