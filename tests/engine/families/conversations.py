"""Conversations made at random: what people and models say, without control tokens."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

_WORDS = (
    *("dog", "Harry", "it's", "brown  ", "user", "assistant", "system", "tool", "think", "end", "model", "1234567"),
    *("你好", "é", "🍕", "Ⅳ", "\u00a0", "'", '"', "{'a': 1}", "['x']", "```python\n", "- ", "\n", "\n\n", " ", "\t"),
    *("<", ">", "</", "|", "<b>", "<table>", "a < b", "x > y", "</p>", "### Hm:"),
)
TEXTS = st.lists(st.sampled_from(_WORDS) | st.sampled_from([" ", ""]), max_size=8).map("".join) | st.text(
    st.characters(exclude_categories=("Cs",)), max_size=12
)
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "查天气 <b>&'",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Name"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}},
    },
]


def says(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def imitates(messages: list[dict[str, Any]], control: Collection[str]) -> bool:
    """Whether anything looks like a control token, other than thoughts in answers."""
    thoughts = ("<think>", "</think>")
    shown = [(message["role"] == "assistant", json.dumps(message, ensure_ascii=False)) for message in messages]
    return any(token in text for own, text in shown for token in control if not (own and token in thoughts))


@st.composite
def conversations(draw: st.DrawFn, *, calls: bool = False, thinking: bool = False) -> list[dict[str, Any]]:
    """A system message perhaps, then rounds of question and answer; the last may be either."""
    messages = [says("system", draw(TEXTS))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(says("user", draw(TEXTS)))
        if calls and draw(st.booleans()):
            messages += draw(_calls())
        messages.append(draw(_answers(thinking)))
    return messages if draw(st.booleans()) else [*messages, says("user", draw(TEXTS))]


@st.composite
def _calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    arguments = st.fixed_dictionaries({"city": TEXTS, "days": st.integers(0, 9)}) | st.just({})
    made = [
        {"id": f"call{place}", "type": "function", "function": {"name": "weather", "arguments": draw(arguments)}}
        for place in range(draw(st.integers(1, 2)))
    ]
    results = [says("tool", draw(TEXTS), tool_call_id=call["id"], name="weather") for call in made]
    return [says("assistant", draw(st.just("") | TEXTS), tool_calls=made), *results]


@st.composite
def _answers(draw: st.DrawFn, thinking: bool) -> dict[str, Any]:
    answer = draw(TEXTS)
    kind = draw(st.sampled_from(["none", "field", "closed", "open"])) if thinking else "none"
    if kind == "field":
        return says("assistant", answer, reasoning_content=draw(TEXTS))
    thought = {"none": "", "closed": f"<think>\n{draw(TEXTS)}\n</think>\n\n", "open": "<think>"}[kind]
    return says("assistant", thought + answer)
