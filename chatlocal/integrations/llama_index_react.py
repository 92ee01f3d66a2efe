"""The steps of the core's ReActAgent, held in the form that its parser reads.

The agent (llama_index.core.agent.workflow.ReActAgent) tells the model of its tools in a system prompt of its own and
reads a step out of the text of the answer. The prompt is known by the core's constants, and the answer becomes
`Thought: ...`, on one line, then `Action: ...` and `Action Input: {...}`, or `Answer: ...`; which of the two is the
model's choice. The text of a step can still be cut off at the token limit, and what the model thinks, calls and answers
is its own.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from string import Formatter
from typing import Any

from llama_index.core.agent.react.prompts import CONTEXT_REACT_CHAT_SYSTEM_HEADER, REACT_CHAT_SYSTEM_HEADER
from llama_index.core.base.llms.types import ChatMessage, MessageRole

from chatlocal.engine.constraints import Spec, marked
from chatlocal.engine.constraints.normalise import normalise

_HEADERS = (REACT_CHAT_SYSTEM_HEADER, CONTEXT_REACT_CHAT_SYSTEM_HEADER)
_LONGEST_THOUGHT = 400  # characters: a model that repeats itself comes to the point
# The same call with the same outcome so often, and the agent has to answer: it would go on to its last iteration.
_MOST_REPEATS = 2

_TOOL = re.compile(r"^> Tool Name: (?P<name>.+)\nTool Description: (?s:.*?)\nTool Args: (?=\{)", re.MULTILINE)
_CALL = re.compile(r"\nAction: .*\nAction Input: (?s:.*)")
_ANY_OBJECT: dict[str, Any] = {"type": "object"}

# The parser finds these wherever they stand, so a thought must not have them.
_LABELS = ("Action:", "Answer:")


def react_step(messages: Sequence[ChatMessage]) -> Spec | None:
    """The form of the next step if the core's ReActAgent has written these messages, else None.

    A tool whose schema cannot be enforced takes any JSON object. A tool with a space or a bracket in its name has no
    action: the agent's parser would read another name. After the same call had the same outcome twice since the user
    spoke, only an answer is left.
    """
    tools = next((found for message in messages if (found := _tools(message)) is not None), None)
    if tools is None:
        return None
    actions = {name: schema for name, schema in tools.items() if re.fullmatch(r"[^\s()]+", name)}
    if _repeats(messages) >= _MOST_REPEATS:
        actions = {}
    schemas = {f"schema_{index}": schema for index, schema in enumerate(actions.values())}
    steps = [
        '"Answer:" ANSWER',
        *(
            f"{json.dumps(f'Action: {name}', ensure_ascii=False)} INPUT {rule}"
            for name, rule in zip(actions, schemas, strict=True)
        ),
    ]
    rules = (
        f"THOUGHT: / {thought()}/",
        r"ANSWER: / [^\s](?s:.*)/",
        r'INPUT: "\nAction Input: "',
        rf'start: "Thought:" THOUGHT "\n" ({" | ".join(steps)})',
    )
    return marked("\n".join(rules), {}, schemas)


def thought() -> str:
    """The regex of a thought: one line that is not blank, has no label of the parser in it, and comes to an end.

    Its characters are counted by a regex that spells out what is no label. As the complement of a regex that finds
    labels, it would be too large an automaton.
    """
    first = _LABELS[0][0]  # of all labels, and none has it twice
    rests = [label[1:] for label in _LABELS]
    begun = "|".join(rest[:size] for rest in rests for size in range(len(rest) - 1, 0, -1))
    begun = f"(?:{first}(?:{begun})?)"
    broken = "|".join(rest[0] + _other_than(rest[1:], first) for rest in rests)
    broken = rf"{begun}*{first}(?:[^\r\n{first}{''.join(rest[0] for rest in rests)}]|{broken})"
    most = _LONGEST_THOUGHT - 1
    return rf"(?:(?:[^\s{first}]|{broken})(?:[^\r\n{first}]|{broken}){{0,{most}}}{begun}*|{begun}+)"


def _other_than(rest: str, first: str) -> str:
    """What goes on otherwise than `rest`, up to where it does, and begins no label there."""
    other = rf"[^\r\n{first}{rest[0]}]"
    return other if len(rest) == 1 else f"(?:{other}|{rest[0]}{_other_than(rest[1:], first)})"


def _tools(message: ChatMessage) -> dict[str, dict[str, Any]] | None:
    """The tools of the agent's system prompt with the schemas of their arguments; None if it is none."""
    if message.role != MessageRole.SYSTEM:
        return None
    found = next((found for form in _forms() if (found := form.fullmatch(message.content or ""))), None)
    return None if found is None else _described(found["tool_desc"], found["tool_names"])


@cache
def _forms() -> tuple[re.Pattern[str], ...]:
    return tuple(_form(header) for header in _HEADERS)


def _form(header: str) -> re.Pattern[str]:
    parts = (
        re.escape(text) + (f"(?P<{name}>.*?)" if name is not None else "")
        for text, name, _, _ in Formatter().parse(header)
    )
    return re.compile("".join(parts), re.DOTALL)


def _described(description: str, names: str) -> dict[str, dict[str, Any]]:
    tools = {found["name"]: _schema(description[found.end() :]) for found in _TOOL.finditer(description)}
    if ", ".join(tools) == names:
        return tools
    return {name: _ANY_OBJECT for name in names.split(", ") if name}  # a description of another form


def _schema(text: str) -> dict[str, Any]:
    """The schema that the text begins with."""
    try:
        schema, _ = json.JSONDecoder().raw_decode(text)
        normalise(schema, closed=True)  # UnsupportedSchema is a ValueError too
    except (ValueError, RecursionError):
        return _ANY_OBJECT
    return schema if isinstance(schema, dict) and schema.get("type") == "object" else _ANY_OBJECT


def _repeats(messages: Sequence[ChatMessage]) -> int:
    """How often the same call had the same outcome, in the steps at the end of the conversation."""
    steps: Counter[tuple[str, str]] = Counter()
    texts = [message.content or "" for message in messages]
    while len(texts) > 1 and texts[-1].startswith("Observation: ") and (call := _CALL.search(texts[-2])):
        steps[call[0], texts[-1]] += 1
        del texts[-2:]
    return max(steps.values(), default=0)
