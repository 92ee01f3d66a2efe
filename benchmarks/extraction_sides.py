"""Who answers: chatlocal in one of its settings, Outlines on transformers, and transformers' `generate` by itself.

All get the same prompt, decode greedily, and take one item at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from extraction_items import Item

from chatlocal.engine import ChatMessage, Engine, Sampling, constraints
from chatlocal.engine.generation_defaults import end_ids

NEW_TOKENS = 220
GREEDY = Sampling(temperature=0.0, max_tokens=NEW_TOKENS)


@dataclass(frozen=True)
class Answer:
    """One answer with what it took; `seconds` and `forwards` are those of the whole request, its prompt included.

    `compiled` are seconds too, before the request; `refused` says why there was none.
    """

    text: str
    seconds: float
    tokens: int
    forwards: int
    limited: bool = False
    forced: int = 0
    selected: int = 0
    compiled: float = 0.0
    refused: str | None = None


class Side(Protocol):
    def prepare(self, item: Item) -> None:
        """Compile the item's grammar. Any exception is a refusal."""

    def answer(self, item: Item) -> Answer: ...


class Chatlocal:
    """An engine; the request is worded as for `with_structured_output`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def prepare(self, item: Item) -> None:
        tokenizer = self.engine.tokenizer
        family = self.engine.render(self.messages(item)).stop_ids(tokenizer)
        ends = end_ids(tokenizer, self.engine.model.generation_config, family)
        self.engine.backend.prepare(constraints.json_schema(item.schema), ends)

    def answer(self, item: Item) -> Answer:
        return self._measured(item, spec=constraints.json_schema(item.schema), sampling=GREEDY)

    def prefill(self, item: Item) -> Answer:
        """The prompt by itself: one new id, no grammar, so every forward of it reads the prompt."""
        return self._measured(item, sampling=Sampling(temperature=0.0, max_tokens=1))

    def messages(self, item: Item) -> tuple[ChatMessage, ...]:
        return self.engine.ask_for_json([ChatMessage("user", item.text)], item.schema)

    def _measured(self, item: Item, **options: Any) -> Answer:
        before = self.engine.stats()
        start = time.perf_counter()
        reply = self.engine.generate([ChatMessage("user", item.text)], answer_schema=item.schema, **options)
        seconds = time.perf_counter() - start
        took = {name: count - before[name] for name, count in self.engine.stats().items()}
        return Answer(
            text=reply.message.text,
            seconds=seconds,
            tokens=took["tokens_out"],
            forwards=took["forwards"],
            limited=reply.finish.reason == "length",
            forced=took["forced"],
            selected=took["selected"],
        )


class Peer:
    """A transformers model whose forwards are counted; each gives one id, the last one often the end of the turn."""

    def __init__(self, model: Any, prompts: Chatlocal) -> None:
        self.model = model
        self.prompts = prompts
        self._forwards = 0
        model.register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self._forwards += 1

    def measured(self, run: Callable[[], str]) -> Answer:
        before = self._forwards
        start = time.perf_counter()
        text = run()
        seconds = time.perf_counter() - start
        forwards = self._forwards - before
        return Answer(text, seconds, tokens=forwards, forwards=forwards, limited=forwards == NEW_TOKENS)


class Outlines:
    """Outlines' transformers integration with its default backend. ImportError where it is not installed."""

    def __init__(self, peer: Peer, tokenizer: Any) -> None:
        import outlines

        self._outlines = outlines
        self._model = outlines.from_transformers(peer.model, tokenizer)
        self._peer = peer

    def prepare(self, item: Item) -> None:
        self._generator = self._outlines.Generator(self._model, self._outlines.types.JsonSchema(item.schema))

    def answer(self, item: Item) -> Answer:
        turns = [{"role": turn.role, "content": turn.text} for turn in self._peer.prompts.messages(item)]
        chat = self._outlines.inputs.Chat(turns)
        return self._peer.measured(lambda: self._generator(chat, max_new_tokens=NEW_TOKENS, do_sample=False))


class Generate:
    """transformers' `generate`, unconstrained, for as many ids as `tokens` says; what it writes is not looked at."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.tokens = 1

    def prepare(self, item: Item) -> None:
        """There is no grammar."""

    def answer(self, item: Item) -> Answer:
        engine = self._peer.prompts.engine
        ids = torch.tensor([engine.render(self._peer.prompts.messages(item)).ids(engine.tokenizer)])

        def run() -> str:
            self._peer.model.generate(
                input_ids=ids.to(self._peer.model.device),
                attention_mask=torch.ones_like(ids).to(self._peer.model.device),
                do_sample=False,
                min_new_tokens=self.tokens,
                max_new_tokens=self.tokens,
                pad_token_id=0,
            )
            return ""

        return self._peer.measured(run)
