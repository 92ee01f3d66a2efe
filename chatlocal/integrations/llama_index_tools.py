"""Tool calling as the core's FunctionCallingLLM has it: tools into a call, and tool selections out of a response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    MessageRole,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.program import function_program
from llama_index.core.tools import BaseTool, FunctionTool

from chatlocal.engine.errors import OutputInvalid, UnsupportedInput
from chatlocal.integrations.llama_index_answers import read_arguments
from chatlocal.integrations.llama_index_messages import calls_of
from chatlocal.integrations.llama_index_options import tool_of

# Characters of an answer that an error shows.
_SHOWN = 200


class ToolCalling(FunctionCallingLLM):
    """The core's chat_with_tools, predict_and_call and their kin, over the chat endpoints.

    `tool_choice` and `parallel_tool_calls` are taken beside the core's `tool_required` and `allow_parallel_tool_calls`.
    A call that is demanded is well formed with any model; `allow_parallel_tool_calls=True` allows several calls to
    models that were trained for tools, and `parallel_tool_calls=True` to any model.
    """

    def stream_chat_with_tools(self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any) -> ChatResponseGen:
        """The answer as it comes; arguments as in `chat_with_tools`."""
        return super().stream_chat_with_tools(tools, *args, **_demanded_of_programs(tools, kwargs))

    async def astream_chat_with_tools(
        self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any
    ) -> ChatResponseAsyncGen:
        """`stream_chat_with_tools` for an event loop."""
        return await super().astream_chat_with_tools(tools, *args, **_demanded_of_programs(tools, kwargs))

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of a response, whole or still growing: then with the arguments that were written so far.

        OutputInvalid when there is none and `error_on_no_tool_call`; it names a call that cannot be read. `kwargs` are
        the core's, and nothing here depends on them.
        """
        found = [
            ToolSelection(tool_id=call.id, tool_name=call.name, tool_kwargs=read_arguments(call.arguments))
            for call in calls_of(response.message)
        ]
        if not found and error_on_no_tool_call:
            raise _no_call(response)
        return found

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The arguments for `chat`. `verbose` is for those who run the tools."""
        asked = ChatMessage(role=MessageRole.USER, content=user_msg) if isinstance(user_msg, str) else user_msg
        return {
            "messages": [*(chat_history or ()), *([asked] if asked is not None else ())],
            "tools": [_declared(tool) for tool in tools],
            "allow_parallel_tool_calls": allow_parallel_tool_calls,
            "tool_required": tool_required,
            **kwargs,
        }

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[BaseTool],
        allow_parallel_tool_calls: bool = False,
        **kwargs: Any,
    ) -> ChatResponse:
        """The response with its first call alone, unless several are allowed: what takes one takes no more."""
        if allow_parallel_tool_calls or kwargs.get("parallel_tool_calls"):
            return response
        return _with_one_call(response)


def _demanded_of_programs(tools: Sequence[BaseTool], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The core's programs leave their `tool_required` out where they stream, and nothing but a call is of use to them.

    Their one tool stands for the class of the answer.
    """
    made = (isinstance(tool, FunctionTool) and tool.real_fn.__module__ == function_program.__name__ for tool in tools)
    demanded = any(made) and kwargs.get("tool_choice") is None
    return {**kwargs, "tool_required": True} if demanded else kwargs


def _with_one_call(response: ChatResponse) -> ChatResponse:
    message = response.message
    calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if len(calls) < 2:
        return response
    extra = message.additional_kwargs
    return response.model_copy(
        update={
            "message": message.model_copy(
                update={
                    "blocks": [block for block in message.blocks if block not in calls[1:]],
                    "additional_kwargs": {**extra, "tool_calls": extra.get("tool_calls", [])[:1]},
                }
            )
        }
    )


def _declared(tool: Any) -> Any:
    """A tool of the core, or one in OpenAI's shape, for the engine. UnsupportedInput for a bare function."""
    if isinstance(tool, BaseTool):
        return tool_of(tool)
    if callable(tool):
        name = getattr(tool, "__name__", "function")
        raise UnsupportedInput(f"{name} is a bare function: pass FunctionTool.from_defaults({name}).")
    return tool


def _no_call(response: ChatResponse) -> OutputInvalid:
    text = response.message.content or ""
    invalid = response.message.additional_kwargs.get("invalid_tool_calls")
    if not invalid:
        said = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        return OutputInvalid(
            f"The answer has no tool call, and one was expected: {said!r}. tool_required=True has the model make one,"
            " error_on_no_tool_call=False takes the text.",
            text,
        )
    broken = invalid[0]
    finish = response.raw.get("finish_reason") if isinstance(response.raw, dict) else None
    hint = "; the answer was cut off at its token limit: raise max_tokens" if finish == "length" else ""
    named = f" to {broken['name']}" if broken["name"] else ""
    return OutputInvalid(
        f"The call{named} cannot be read ({broken['error']}{hint}): {broken['raw']!r:.200}.", broken["raw"]
    )
