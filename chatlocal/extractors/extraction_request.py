"""Asking a model for the answer of an extraction: by grammar where the model is one of ours, by prompt where not."""

from __future__ import annotations

from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel

from chatlocal.engine import ChatMessage, Engine, Sampling, constraints
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.families import Prompt, Text
from chatlocal.engine.instructions import ask_for_json
from chatlocal.engine.repair import Tries
from chatlocal.engine.shared import shared_engine
from chatlocal.extractors.record_schema import RecordSchema


class Answers(Protocol):
    """What `Extractor` needs of a model."""

    def answer(self, text: str, retries: int) -> Tries[Any]:
        """The answers to one text, judged."""

    def count_tokens(self, text: str) -> int:
        """How many tokens a text has."""


def answers_of(
    llm: Any, schema: RecordSchema, instructions: str | None, *, constrain: bool, max_tokens: int | None
) -> Answers:
    """The way to ask this model. UnsupportedInput for what is no model."""
    engine = llm if isinstance(llm, Engine) else shared_engine() if llm is None else getattr(llm, "engine", None)
    if isinstance(engine, Engine):
        return ByEngine(engine, schema, instructions, constrain, max_tokens)
    if isinstance(llm, BaseChatModel):
        return ByPrompt(llm, schema, instructions)
    raise UnsupportedInput(f"llm is a ChatLocal, a LocalLLM, an Engine or a LangChain chat model, got {llm!r:.80}.")


class ByEngine:
    """A model of ours."""

    def __init__(
        self, engine: Engine, schema: RecordSchema, instructions: str | None, constrain: bool, max_tokens: int | None
    ) -> None:
        self._engine = engine
        self._schema = schema
        self._system = (ChatMessage("system", instructions),) if instructions else ()
        self._spec = constraints.json_schema(schema.answer) if constrain else None
        self._sampling = Sampling(temperature=0.0, max_tokens=max_tokens)

    def answer(self, text: str, retries: int) -> Tries[Any]:
        tries = Tries(self._schema.check, retries)
        asked = [*self._system, *self._engine.ask_for_json([ChatMessage("user", text)], self._schema.answer)]
        while True:
            reply = self._engine.generate(asked, spec=self._spec, sampling=self._sampling)
            tries.take(reply.message.text, cut=reply.finish.reason == "length")
            if not tries.again:
                return tries
            asked = [*asked, ChatMessage("assistant", reply.message.text), ChatMessage("user", tries.complaint())]

    def count_tokens(self, text: str) -> int:
        return len(Prompt((Text(text),)).ids(self._engine.tokenizer))


class ByPrompt:
    """Any other LangChain chat model."""

    def __init__(self, llm: BaseChatModel, schema: RecordSchema, instructions: str | None) -> None:
        self._llm = llm
        self._schema = schema
        self._system = [("system", instructions)] if instructions else []

    def answer(self, text: str, retries: int) -> Tries[Any]:
        tries = Tries(self._schema.check, retries)
        turns = ask_for_json([ChatMessage("user", text)], self._schema.answer, trained=True)
        asked: list[Any] = [*self._system, *((turn.role, turn.text) for turn in turns)]
        while True:
            reply = self._llm.invoke(asked)
            tries.take(str(reply.text).strip())
            if not tries.again:
                return tries
            asked = [*asked, ("assistant", str(reply.text)), ("user", tries.complaint())]

    def count_tokens(self, text: str) -> int:
        return self._llm.get_num_tokens(text)
