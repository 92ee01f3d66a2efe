"""What `as_structured_llm` gives: the core's StructuredLLM whose responses say what they took."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from llama_index.core.base.llms.types import ChatMessage, ChatResponse, MessageRole
from llama_index.core.llms.callbacks import llm_chat_callback
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.prompts.base import ChatPromptTemplate

from chatlocal.engine.repair import as_json
from chatlocal.integrations.llama_index_reporting import reported, reported_async
from chatlocal.integrations.llama_index_structured import Prediction, StructuredPrediction


class LocalStructuredLLM(StructuredLLM):
    """An LLM whose answers are objects of one class: the response's `raw`, and JSON as its text.

    A whole response has in its additional_kwargs all answers of the model under "tries", each a dict of `answer` and
    `error` (None for the one that fits), the counts of their tokens in all, under "confidence" how probable the model
    found each value (by its JSON pointer), and under "left_to_validation" what of the schema no grammar enforced, if
    there is something.
    """

    @reported(llm_chat_callback)
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The object that answers a conversation."""
        return _response(self._local.predicted(self.output_cls, _prompt(messages), kwargs, {}))

    @reported_async(llm_chat_callback)
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """`chat` for an event loop."""
        return _response(await self._local.apredicted(self.output_cls, _prompt(messages), kwargs, {}))

    async def aload(self) -> Any:
        """The engine behind this object; loading runs in a thread."""
        return await cast(Any, self.llm).aload()

    @property
    def _local(self) -> StructuredPrediction:
        return cast(StructuredPrediction, self.llm)


def _prompt(messages: Sequence[ChatMessage]) -> ChatPromptTemplate:
    return ChatPromptTemplate(message_templates=list(messages))


def _response(prediction: Prediction[Any]) -> ChatResponse:
    told = {name: prediction.raw[name] for name in ("left_to_validation", "confidence") if name in prediction.raw}
    return ChatResponse(
        message=ChatMessage(role=MessageRole.ASSISTANT, content=prediction.value.model_dump_json()),
        raw=prediction.value,
        additional_kwargs={
            "tries": as_json(prediction.tries),
            **told,
            **prediction.usage,
        },
    )
