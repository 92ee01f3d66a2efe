"""An answer ends where its turn ends, in every family: the model's next turn never runs into it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import dropwhile
from typing import Any

import pytest

from chatlocal import Engine
from chatlocal.engine import families
from chatlocal.engine.families import Markup, Prompt
from tests.scripted import ScriptedBackend
from tests.tiny import tiny_tokenizer

TURNS = [
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]


def with_control_tokens(prompt: Prompt, special: bool) -> Any:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    tokenizer.eos_token = "<|endoftext|>"
    if special:
        tokenizer.add_special_tokens({"extra_special_tokens": sorted(prompt.control)})
    return tokenizer


def after_the_answer(prompt: Prompt) -> Iterator[Any]:
    """The parts behind the text "two"."""
    parts = dropwhile(lambda part: "two" not in part.text, prompt.parts)
    first = next(parts)
    yield first.text[first.text.index("two") + 3 :]
    yield from parts


@pytest.mark.parametrize("special", [True, False], ids=["with control tokens", "without"])
@pytest.mark.parametrize("name", families.names())
def test_a_turn_never_runs_into_the_next(name: str, special: bool) -> None:
    prompt = families.get(name).render(TURNS)
    tokenizer = with_control_tokens(prompt, special)
    known = tokenizer.get_added_vocab()
    script: list[int] = list(tokenizer.encode("An answer", add_special_tokens=False))
    for part in after_the_answer(prompt):
        text = part if isinstance(part, str) else part.text
        if isinstance(part, Markup) and text in known:
            script.append(known[text])
        else:
            script += tokenizer.encode(text, add_special_tokens=False)
    backend = ScriptedBackend(script)
    engine = Engine(None, tokenizer, backend=backend, template=name)
    reply = engine.generate(TURNS[:1])
    # Where the prompt has begun a thought, what comes up to the end of the turn is part of it.
    thinks = "<think>" in engine.render(TURNS[:1]).opened
    said = reply.message.reasoning if thinks else reply.message.text
    assert (said or "").strip() == "An answer"
    assert reply.finish.reason == "stop"
    assert backend.steps < len(script)
