"""Models whose answers are written down, for the tests of Extractor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage

from chatlocal.engine import Engine
from chatlocal.engine.runtime.backend import Done, IdLogprob, Request, Tokens
from tests.tiny import tiny_tokenizer


class Knows:
    """A backend that finds some continuations likely: those texts that are the answer to the last line of the prompt.

    `answers` are likely values by label; everything else is as unlikely as it is long. `prompts` are those it saw.
    """

    def __init__(self, answers: dict[str, str]) -> None:
        self._tokenizer = tiny_tokenizer()
        self._answers = answers
        self.prompts: list[str] = []

    def submit(self, request: Request) -> Any:
        """One id, with no report on others: all texts are scored then."""
        self.prompts.append(self._tokenizer.decode(request.prompt_ids))
        yield Tokens((65,), (IdLogprob(65, -1.0),))
        yield Done("length")

    def score(self, prompt_ids: Sequence[int], continuations: Sequence[Sequence[int]]) -> list[float]:
        prompt = self._tokenizer.decode(prompt_ids)
        self.prompts.append(prompt)
        label, _, said = prompt.rpartition("\n")[2].partition(":")
        right = self._answers.get(label, "not given")
        return [self._likely(right, said, self._tokenizer.decode(ids)) - 0.01 * len(ids) for ids in continuations]

    def _likely(self, right: str, said: str, text: str) -> float:
        whole = f"{right}\n"
        return -0.1 if whole.startswith((said + text).strip(" ")) and text.strip(" ") else -30.0


def knowing_engine(answers: dict[str, str]) -> tuple[Engine, Knows]:
    """An engine over such a backend, whose model was not trained for tools."""
    backend = Knows(answers)
    tokenizer = tiny_tokenizer()
    tokenizer.model_max_length = 100_000
    return Engine(None, tokenizer, backend=backend), backend


class Recorded(GenericFakeChatModel):
    """A LangChain chat model that gives these answers in turn; `asked` are the conversations it was given."""

    asked: list[list[BaseMessage]]

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        return super()._generate(messages, *args, **kwargs)


def recorded(*answers: str) -> Recorded:
    return Recorded(messages=iter([AIMessage(answer) for answer in answers]), asked=[])
