"""What goes into the engine: frozen values without ids, storage or a framework in them.

Everywhere a ChatMessage or Tool is taken, a plain dict in OpenAI's shape is taken too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chatlocal.engine.errors import UnsupportedInput

ROLES = ("system", "user", "assistant", "tool")

# Names that other APIs give to the same four roles.
_ROLE_NAMES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "chatbot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message: a URL, data URL, file path, or the encoded bytes."""

    source: str | bytes


Part = str | Image


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asked for. `arguments` is JSON text, as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """What looked like a call and could not be read: the raw text and why."""

    raw: str
    error: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call. `parameters` is a JSON Schema of type object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False

    @classmethod
    def of(cls, value: Tool | Mapping[str, Any]) -> Tool:
        """Read OpenAI's `{"type": "function", "function": {...}}` or the bare function. UnsupportedInput otherwise."""
        if isinstance(value, Tool):
            return value
        function = value.get("function", value) if isinstance(value, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
            raise UnsupportedInput(f"A tool needs a name and parameters in OpenAI's shape, got: {value!r}")
        parameters = function.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(parameters, Mapping):
            raise UnsupportedInput(f"The parameters of a tool are a JSON Schema, got {parameters!r:.80}.")
        _json(parameters, f"the parameters of the tool {function['name']}")
        return cls(
            name=function["name"],
            description=_text(function, "description") or "",
            parameters=dict(parameters),
            strict=bool(function.get("strict", False)),
        )


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn. `role` is one of ROLES; `content` is text, a tuple of text and images, or None."""

    role: str
    content: str | tuple[Part, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None

    @property
    def text(self) -> str:
        """The text parts joined, "" for None. UnsupportedInput when there is an image among the parts."""
        if self.content is None:
            return ""
        if isinstance(self.content, str):
            return self.content
        if any(isinstance(part, Image) for part in self.content):
            raise UnsupportedInput(
                f"The {self.role} message carries an image and this model reads text only: leave the image out or"
                " choose a model that takes images."
            )
        return "".join(part for part in self.content if isinstance(part, str))

    @classmethod
    def of(cls, value: ChatMessage | Mapping[str, Any]) -> ChatMessage:
        """Read a message in OpenAI's shape. UnsupportedInput for an unknown role or content part."""
        if isinstance(value, ChatMessage):
            return value
        if not isinstance(value, Mapping):
            raise UnsupportedInput(f"A message is a ChatMessage or a dict with role and content, got {value!r}.")
        role = value.get("role")
        known = _ROLE_NAMES.get(role.lower()) if isinstance(role, str) else None
        if known is None:
            raise UnsupportedInput(f"Unknown role {role!r}: use one of {', '.join(sorted(_ROLE_NAMES))}.")
        return cls(
            role=known,
            content=_content(value.get("content")),
            tool_calls=tuple(_tool_call(call) for call in _calls(value)),
            tool_call_id=_text(value, "tool_call_id"),
            name=_text(value, "name"),
            reasoning=_text(value, "reasoning") or _text(value, "reasoning_content"),
        )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How ids are chosen. None means what the model's generation_config says, else greedy; temperature 0 is greedy.

    `max_tokens` counts new ids. `stop` are texts at which the answer ends, without them. `logprobs` is how many
    alternatives to report for each id: None for no report at all, 0 for the chosen id alone.

    `max_thinking_tokens` is how many ids a model may think before it answers, of those of `max_tokens`; the marks
    around the thinking are not counted. Then the thinking is closed and the answer follows; 0 closes it at once. None
    sets no limit of its own, but where the answer has a form (a schema, tools) at least half of `max_tokens` is left to
    it. A model that has no marks for its thinking, or whose prompt has it closed, does not think in this sense.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_thinking_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None

    def __post_init__(self) -> None:
        stop: Any = self.stop  # callers may write a single text
        if not isinstance(stop, Iterable):
            raise UnsupportedInput(f"stop takes a text or a list of texts, got {stop!r}.")
        object.__setattr__(self, "stop", (stop,) if isinstance(stop, str) else tuple(stop))
        for name, kind, low, high in _RANGES:
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, kind):
                wanted = "a whole number" if kind is int else "a number"
                raise UnsupportedInput(f"{name} must be {wanted}, got {value!r}.")
            if not low <= value <= high:  # NaN fails every comparison, so it is refused too
                raise UnsupportedInput(f"{name} must be between {low} and {high}, got {value}.")
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise UnsupportedInput(f"stop takes texts of at least one character, got {list(self.stop)!r}.")


_RANGES: tuple[tuple[str, Any, float, float], ...] = (
    ("temperature", (int, float), 0, 100),
    ("top_p", (int, float), 0, 1),
    ("top_k", int, 0, 2**31),
    ("min_p", (int, float), 0, 1),
    ("repetition_penalty", (int, float), 1e-6, 100),
    ("presence_penalty", (int, float), -100, 100),
    ("frequency_penalty", (int, float), -100, 100),
    ("seed", int, -(2**63), 2**64),
    ("max_tokens", int, 1, 2**31),
    ("max_thinking_tokens", int, 0, 2**31),
    ("logprobs", int, 0, 1000),
)


def read_messages(values: Iterable[ChatMessage | Mapping[str, Any]]) -> tuple[ChatMessage, ...]:
    """A conversation from messages or dicts. UnsupportedInput when it is empty or a message cannot be read."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise UnsupportedInput(
            f"Messages come as a list, such as [{{'role': 'user', 'content': ...}}], got {values!r}."
        )
    messages = tuple(ChatMessage.of(value) for value in values)
    if not messages:
        raise UnsupportedInput("There are no messages: give at least one.")
    return messages


def read_tools(values: Sequence[Tool | Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """Tools from Tool values or OpenAI dicts; none gives an empty tuple. UnsupportedInput for what is no list."""
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable | None):
        raise UnsupportedInput(f"Tools come as a list, got {values!r:.80}.")
    return tuple(Tool.of(value) for value in values or ())


def _content(value: Any) -> str | tuple[Part, ...] | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return tuple(_part(part) for part in value)
    raise UnsupportedInput(f"Message content must be text or a list of parts, got {type(value).__name__}.")


def _part(part: Any) -> Part:
    if isinstance(part, (str, Image)):
        return part
    if isinstance(part, Mapping):
        kind = part.get("type", "text")
        if kind == "text" and isinstance(part.get("text"), str):
            return str(part["text"])
        if kind == "image_url":
            url = part.get("image_url")
            url = url.get("url") if isinstance(url, Mapping) else url
            if isinstance(url, str):
                return Image(url)
        raise UnsupportedInput(f"Content parts of type {kind!r} cannot be read here: use text or image_url parts.")
    raise UnsupportedInput(f"A content part must be text or a dict, got {type(part).__name__}.")


def _text(value: Mapping[str, Any], key: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise UnsupportedInput(f"{key} of a message is text, got {found!r:.80}.")
    return found


def _calls(value: Mapping[str, Any]) -> Sequence[Any]:
    """The calls of a message; OpenAI's older `function_call` is one without an id."""
    calls = value.get("tool_calls") or [call for call in (value.get("function_call"),) if call]
    if isinstance(calls, (str, Mapping)) or not isinstance(calls, Sequence):
        raise UnsupportedInput(f"tool_calls of a message is a list of calls, got {calls!r:.80}.")
    return calls


def _tool_call(call: ToolCall | Mapping[str, Any]) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise UnsupportedInput(f"A tool call needs a function name, got: {call!r}")
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        arguments = _json({} if arguments is None else arguments, f"the arguments of a call to {function['name']}")
    return ToolCall(id=_text(call, "id") or "", name=function["name"], arguments=arguments)


def _json(value: Any, what: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedInput(f"JSON cannot hold {what} ({error}): use text, numbers, lists and dicts.") from error
