"""Asking again: a structured answer that does not validate goes back to the model with what was wrong with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import patch_config
from pydantic import ConfigDict

from chatlocal.integrations.langchain_structured import AnswerParser


class Repairing(RunnableSerializable[LanguageModelInput, Any]):
    """A model with its parser that asks up to `repairs` times again.

    Not for an answer that was cut at max_tokens, which would be cut again, and not for streams, whose first answer has
    been seen already.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    bound: Runnable[LanguageModelInput, Any]
    parser: AnswerParser
    repairs: int

    def invoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return self._call_with_config(self._answer, input, config, **kwargs)

    async def ainvoke(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        return await self._acall_with_config(self._aanswer, input, config, **kwargs)

    def stream(self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any) -> Iterator[Any]:
        yield from (self.bound | self.parser).stream(input, config, **kwargs)

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        async for value in (self.bound | self.parser).astream(input, config, **kwargs):
            yield value

    def _answer(
        self, input: LanguageModelInput, run_manager: CallbackManagerForChainRun, config: RunnableConfig, **kwargs: Any
    ) -> Any:
        config = patch_config(config, callbacks=run_manager.get_child())
        messages = _messages(input)
        reply = self.bound.invoke(messages, config, **kwargs)
        for _ in range(self.repairs):
            correction = self._correction(reply)
            if correction is None:
                break
            messages = [*messages, *correction]
            reply = self.bound.invoke(messages, config, **kwargs)
        return self.parser.invoke(reply, config)

    async def _aanswer(
        self,
        input: LanguageModelInput,
        run_manager: AsyncCallbackManagerForChainRun,
        config: RunnableConfig,
        **kwargs: Any,
    ) -> Any:
        config = patch_config(config, callbacks=run_manager.get_child())
        messages = _messages(input)
        reply = await self.bound.ainvoke(messages, config, **kwargs)
        for _ in range(self.repairs):
            correction = self._correction(reply)
            if correction is None:
                break
            messages = [*messages, *correction]
            reply = await self.bound.ainvoke(messages, config, **kwargs)
        return await self.parser.ainvoke(reply, config)

    def _correction(self, reply: AIMessage) -> list[BaseMessage] | None:
        """The turns that ask again; None where nothing is wrong or asking again cannot help."""
        error = self.parser.error_of(self.parser.written(reply))
        if error is None or reply.response_metadata.get("finish_reason") == "length":
            return None
        if reply.tool_calls:
            complaint = f"The arguments are not valid. {error}\nMake the call again with valid ones."
            results = [ToolMessage(complaint, tool_call_id=call["id"], status="error") for call in reply.tool_calls]
            return [reply, *results]
        return [
            AIMessage(error.raw),
            HumanMessage(f"That answer is not valid. {error}\nAnswer again with a valid one."),
        ]


def _messages(input: LanguageModelInput) -> list[BaseMessage]:
    if isinstance(input, PromptValue):
        return input.to_messages()
    return convert_to_messages([input] if isinstance(input, str) else input)
