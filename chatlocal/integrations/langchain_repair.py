"""Asking again: a structured answer that does not validate goes back to the model with what was wrong with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, convert_to_messages
from langchain_core.messages.ai import add_usage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import patch_config
from pydantic import ConfigDict

from chatlocal.engine.errors import BudgetTooSmall, ContextOverflow
from chatlocal.engine.repair import Tries
from chatlocal.integrations.langchain_structured import AnswerParser, with_tries

# A conversation that has grown by what was wrong may have no room left: then the answer that was refused is the last.
_NO_ROOM = (ContextOverflow, BudgetTooSmall)


class Repairing(RunnableSerializable[LanguageModelInput, Any]):
    """A model with its parser that asks up to `repairs` times again, as long as the context has room for it.

    Not for an answer that was cut at max_tokens, which would be cut again, and not for streams, whose first answer has
    been seen already. The parser gets the last message, with the tries before it and the tokens of all of them.
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
        tries = self.parser.judged(reply, self.repairs)
        while tries.again:
            messages = [*messages, *_correction(reply, tries)]
            try:
                reply = _following(reply, tries, self.bound.invoke(messages, config, **kwargs))
            except _NO_ROOM:
                break
            tries = self.parser.judged(reply, self.repairs)
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
        tries = self.parser.judged(reply, self.repairs)
        while tries.again:
            messages = [*messages, *_correction(reply, tries)]
            try:
                reply = _following(reply, tries, await self.bound.ainvoke(messages, config, **kwargs))
            except _NO_ROOM:
                break
            tries = self.parser.judged(reply, self.repairs)
        return await self.parser.ainvoke(reply, config)


def _correction(reply: AIMessage, tries: Tries[Any]) -> list[BaseMessage]:
    """The turns that ask again."""
    if reply.tool_calls:
        complaint = tries.complaint(call=True)
        results = [ToolMessage(complaint, tool_call_id=call["id"], status="error") for call in reply.tool_calls]
        return [reply, *results]
    return [AIMessage(tries.made[-1].answer), HumanMessage(tries.complaint())]


def _following(before: AIMessage, tries: Tries[Any], reply: AIMessage) -> AIMessage:
    """The reply with the tries before it in its metadata, and their tokens in its usage."""
    usage = add_usage(before.usage_metadata, reply.usage_metadata)
    return with_tries(reply, tries.made).model_copy(update={"usage_metadata": usage})


def _messages(input: LanguageModelInput) -> list[BaseMessage]:
    if isinstance(input, PromptValue):
        return input.to_messages()
    return convert_to_messages([input] if isinstance(input, str) else input)
