"""ChatGLM-6B, ChatGLM2 and ChatGLM3, as the code of their repositories builds prompts from ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from chatlocal.engine.families.native import Chat, NativeFamily, System
from chatlocal.engine.families.prompt import Markup, Part, Text
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.messages import ChatMessage, Tool

_NO_TEMPLATE = "its prompts are built from ids, by rules that no chat template tells"
_WRONG_TEMPLATE = "the text of its chat template is tokenized wrongly: its role tokens are known by their ids only"


@dataclass(frozen=True)
class ChatGLM(NativeFamily):
    """ChatGLM-6B: rounds numbered from 0, a lone question as it is; the answer begins behind the control tokens.

    Where the conversation ends with an answer, that stands behind them too, with <eop> at its end: as in training.
    """

    name: str = "chatglm-6b"
    system: System = "nowhere"
    alternates: bool = True
    special: tuple[str, ...] = ("[gMASK]", "<sop>", "<eop>")
    stop_strings: tuple[str, ...] = ("<eop>",)
    next_turn: tuple[str, ...] = ("\n[Round ",)
    made_for: tuple[MadeFor, ...] = (
        MadeFor(("chatglm",), vocab_sizes=(130_528, 150_528), dedicated=True, because=_NO_TEMPLATE),
    )

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        last = chat.turns[-1]
        asked = chat.turns if last.role == "user" else chat.turns[:-1]
        rounds = "".join(_rounds(asked, 0, "[Round {}]\n问：{}\n", "答：{}\n")) + "答："
        yield Text(asked[0].text if len(asked) == 1 else rounds, own=True, gap="")
        if last.role == "assistant":
            yield from self.parts("[gMASK]<sop>")
            yield Text(last.text, own=True, gap="")
            yield from self.parts("<eop>")
        elif chat.add_generation_prompt:
            yield from self.parts("[gMASK]<sop>")


@dataclass(frozen=True)
class ChatGLM2(NativeFamily):
    """ChatGLM2: numbered rounds from 1 behind the control tokens."""

    name: str = "chatglm2"
    system: System = "nowhere"
    alternates: bool = True
    special: tuple[str, ...] = ("[gMASK]", "sop", "</s>")
    stop_strings: tuple[str, ...] = ("</s>",)
    next_turn: tuple[str, ...] = ("\n\n[Round ",)
    made_for: tuple[MadeFor, ...] = (
        MadeFor(("chatglm",), "(chatglm2)?", vocab_sizes=(65_024,), dedicated=True, because=_NO_TEMPLATE),
    )

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts("[gMASK]sop")
        rounds = "".join(_rounds(chat.turns, 1, "[Round {}]\n\n问：{}\n\n", "答：{}\n\n"))
        yield Text(rounds + "答：" if chat.add_generation_prompt else rounds, own=True, gap="")


@dataclass(frozen=True)
class ChatGLM3(NativeFamily):
    """ChatGLM3: a role token, what stands behind it on its line, and the content, each tokenized on its own.

    Besides OpenAI's shape it reads that of its own repository: `tools` of a system message, `metadata` of an
    assistant's (the name of the tool that it calls, with the call as content), and the role "observation" for a
    tool's result.
    """

    name: str = "chatglm3"
    renders_tools: ClassVar[bool] = True
    tool_format: ClassVar[str] = "chatglm3"
    roles: frozenset[str] = frozenset({"user", "assistant", "tool"})
    special: tuple[str, ...] = (
        *("[gMASK]", "sop", "</s>"),
        *("<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    )
    stop_strings: tuple[str, ...] = ("</s>", "<|user|>", "<|observation|>")
    made_for: tuple[MadeFor, ...] = (
        MadeFor(("chatglm",), "chatglm3", vocab_sizes=(65_024,), dedicated=True, because=_WRONG_TEMPLATE),
        MadeFor(("chatglm",), vocab_sizes=(65_024,), token="<|user|>", dedicated=True, because=_WRONG_TEMPLATE),
    )

    def read(self, messages: Iterable[ChatMessage | Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
        """The conversation, from messages in OpenAI's shape or that of ChatGLM3's repository."""
        return super().read([_own_shape(message) for message in messages])

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        yield from self.parts("[gMASK]sop")
        turns = chat.turns
        if chat.tools:
            text = _INTRODUCTION if chat.system is None else chat.system
            turns = (ChatMessage("system", _with_tools(text, [_bare(tool) for tool in chat.tools])), *chat.talk)
        for turn in turns:
            if turn.text or not turn.tool_calls:
                yield from self._turn(turn.role, (turn.name or "") if turn.role == "assistant" else "", turn.text)
            for call in turn.tool_calls:
                yield from self._turn("assistant", call.name, _as_code(call.arguments))
        if chat.add_generation_prompt:
            yield from self.parts("<|assistant|>")

    def _turn(self, role: str, line: str, text: str) -> Iterator[Part]:
        yield Markup("<|observation|>" if role == "tool" else f"<|{role}|>")
        yield Text(f"{line}\n", own=True)
        yield Text(text, own=True)


# The words that the repository's demonstration puts before its list of tools.
_INTRODUCTION = "Answer the following questions as best as you can. You have access to the following tools:"


def _rounds(turns: tuple[ChatMessage, ...], first: int, question: str, answer: str) -> Iterator[str]:
    for index, turn in enumerate(turns):
        if turn.role == "user":
            yield _fill(question, str(first + index // 2), turn.text)
        else:
            yield _fill(answer, turn.text)


def _fill(pattern: str, *texts: str) -> str:
    pieces = pattern.split("{}")
    return pieces[0] + "".join(text + piece for text, piece in zip(texts, pieces[1:], strict=True))


def _own_shape(message: ChatMessage | Mapping[str, Any]) -> ChatMessage | Mapping[str, Any]:
    if not isinstance(message, Mapping):
        return message
    if message.get("role") == "system" and message.get("tools"):
        return {**message, "content": _with_tools(ChatMessage.of(message).text, message["tools"])}
    if message.get("metadata"):
        return replace(ChatMessage.of(message), name=message["metadata"])
    return message


def _bare(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": tool.parameters}


def _with_tools(text: str, tools: Any) -> str:
    return text + "\n" + json.dumps(tools, indent=4, ensure_ascii=False)


def _as_code(arguments: str) -> str:
    """A call as ChatGLM3 writes it, a Python call of `tool_call`; arguments that are no JSON object as they are."""
    as_it_is = f"```python\n{arguments}\n```"
    try:
        read = json.loads(arguments)
        if not isinstance(read, dict):
            return as_it_is
        written = ", ".join(f"{name}={_literal(value)}" for name, value in read.items())
    except (ValueError, RecursionError):  # no JSON, or nested too deeply to be written anew
        return as_it_is
    return f"```python\ntool_call({written})\n```"


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


FAMILIES = (ChatGLM(), ChatGLM2(), ChatGLM3())
