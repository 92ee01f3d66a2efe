"""How many arguments of tool calls are right on a model that was never trained for tools, with a grammar and without.

40 requests with one right call each (data/tool_calls.jsonl, English and Chinese). With the grammar every call is valid
that is not cut at the token limit. Without it the beginning of a call is put in the model's mouth, and what follows is
read as it comes. `python benchmarks/tool_calls.py --help` lists the options.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatlocal.engine import ChatMessage, Engine, Sampling, Tool, toolcalls
from chatlocal.engine.messages import ToolCall
from chatlocal.engine.tool_instructions import with_tools

CALLS = Path(__file__).parent / "data" / "tool_calls.jsonl"
NEW_TOKENS = 120
GREEDY = Sampling(temperature=0.0, max_tokens=NEW_TOKENS)
OPENING = '<tool_call>\n{"name": "'


@dataclass(frozen=True)
class Item:
    """A request, the tools that are declared, and the right call."""

    language: str
    user: str
    tools: tuple[Tool, ...]
    name: str
    arguments: dict[str, Any]


@dataclass
class Count:
    """Calls and arguments that are right."""

    calls: int = 0
    right_names: int = 0
    right_calls: int = 0
    fields: int = 0
    right_fields: int = 0

    def add(self, item: Item, call: ToolCall | None) -> bool:
        found = arguments_of(call) if call is not None and call.name == item.name else {}
        self.calls += 1
        self.right_names += call is not None and call.name == item.name
        self.fields += len(item.arguments)
        self.right_fields += sum(same(found.get(key), value) for key, value in item.arguments.items())
        right = call is not None and call.name == item.name and same(found, item.arguments)
        self.right_calls += right
        return right

    def __str__(self) -> str:
        return (
            f"names {self.right_names}/{self.calls}  arguments {self.right_fields}/{self.fields}"
            f"  whole calls {self.right_calls}/{self.calls}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, hub id or GGUF file (default: the embedded model)")
    parser.add_argument("--dtype", default=None)
    parser.add_argument("--data", type=Path, default=CALLS)
    parser.add_argument("--show", action="store_true", help="print the calls that are not all right")
    arguments = parser.parse_args()
    items = list(read(arguments.data))
    with Engine.load(arguments.model, dtype=arguments.dtype) as engine:
        for name, answer in WAYS.items():
            report(name, items, lambda item, answer=answer: answer(engine, item), arguments.show)


def with_grammar(engine: Engine, item: Item) -> ToolCall | None:
    reply = engine.generate([ChatMessage("user", item.user)], tools=item.tools, tool_choice="required", sampling=GREEDY)
    return first(reply.message.tool_calls)


def freely(engine: Engine, item: Item, *, examples: bool = True) -> ToolCall | None:
    asked = with_tools([ChatMessage("user", item.user)], item.tools, examples=examples)
    prompt = engine.render([*asked, ChatMessage("assistant", OPENING)], continue_final_message=True)
    answer = engine.generate(prompt, sampling=GREEDY).message.text
    return first(toolcalls.get("prompted").parse(OPENING + answer, item.tools).calls)


WAYS: dict[str, Callable[[Engine, Item], ToolCall | None]] = {
    "with grammar": with_grammar,
    "freely": freely,
    "freely, no worked examples": lambda engine, item: freely(engine, item, examples=False),
}


def report(name: str, items: list[Item], answer: Callable[[Item], ToolCall | None], show: bool) -> None:
    with ThreadPoolExecutor(16) as threads:
        calls = list(threads.map(answer, items))
    counts = {language: Count() for language in dict.fromkeys(item.language for item in items)}
    for item, call in zip(items, calls, strict=True):
        if not counts[item.language].add(item, call) and show:
            print(f"    {item.user} {item.arguments}\n        {call and (call.name, call.arguments)}")
    for language, count in counts.items():
        print(f"{name:28} {language}: {count}", flush=True)


def first(calls: list[ToolCall] | tuple[ToolCall, ...]) -> ToolCall | None:
    return calls[0] if calls else None


def arguments_of(call: ToolCall) -> dict[str, Any]:
    return dict(json.loads(call.arguments))


def same(found: Any, right: Any) -> bool:
    """Equal as JSON: true is not 1, and 2.0 is 2."""
    return json.dumps(plain(found), sort_keys=True) == json.dumps(plain(right), sort_keys=True)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read(path: Path) -> Iterator[Item]:
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        tools = tuple(tool_of(tool) for tool in record["tools"])
        yield Item(record["language"], record["user"], tools, record["call"]["name"], record["call"]["arguments"])


def tool_of(record: dict[str, Any]) -> Tool:
    """A tool from {"name", "description", "parameters": {name: [type, list of choices or schema, words]}}."""
    properties = {name: {**kind_of(kind), "description": words} for name, (kind, words) in record["parameters"].items()}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return Tool(record["name"], record["description"], schema)


def kind_of(kind: Any) -> dict[str, Any]:
    if isinstance(kind, dict):
        return kind
    return {"enum": kind} if isinstance(kind, list) else {"type": kind}


if __name__ == "__main__":
    main()
