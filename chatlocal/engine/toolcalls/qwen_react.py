"""Qwen-1's function calls: ReAct, lines that begin with labels.

The rules are those of the newest `openai_api.py` in Qwen's repository, with its blind spots closed: a call on the very
first line is a call, a name that no declared tool has is text, and an `Observation:` inside of arguments is part of
them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from chatlocal.engine.errors import UnsupportedInput
from chatlocal.engine.events import CallInvalid, CallStart, Event, Reasoning, Text
from chatlocal.engine.messages import Tool, ToolCall
from chatlocal.engine.toolcalls.call_grammar import CallGrammar, Way, literal
from chatlocal.engine.toolcalls.format import Parsed, ToolFormat, Tools, folded
from chatlocal.engine.toolcalls.json_text import read_value
from chatlocal.engine.toolcalls.output import Output
from chatlocal.engine.toolcalls.source import Reading, Source
from chatlocal.engine.toolcalls.writing import arguments_object

_LABELS = ("thought", "action input", "action", "observation", "final answer")
# In any case, bold or not (the closing stars on either side of the colon), with or without a space.
_LABEL = re.compile(rf"[ \t]*(\*\*|__)?({'|'.join(_LABELS)})(?(1)(?:\1)?)[ \t]*:(?:\*\*|__)?", re.IGNORECASE)
_BOLD = "*_"
_BOLD_ACTIONS = ("**Action:**", "**Action**:")
_LONGEST_THOUGHT = 400  # characters, where a call is demanded
_OBSERVATION = re.compile(rf"^{_LABEL.pattern}", re.IGNORECASE | re.MULTILINE)


class QwenReact(ToolFormat):
    """Thoughts are reasoning, what stands behind `Final Answer:` and text without a label is the answer.

    One call to an answer, given when its arguments are whole; what follows it is the model's invention and left out.
    """

    name = "qwen_react"
    ends = ("<|im_end|>", "<|im_start|>", "<|endoftext|>")
    stops = ("\nObservation:",)
    unwritable = ("`", "*")

    def read(self, source: Source, out: Output, opened: str) -> Reading[None]:
        """Read an answer to its end."""
        reader = _Reader(source, out, self.ends)
        give = out.reasoning if opened.strip().lower().startswith("thought") else out.text
        yield from reader.read(give)

    def parse(self, text: str, tools: Tools | None = None, opened: str = "") -> Parsed:
        """A whole answer, as Qwen's own code returns it: the thought before a call is its content.

        With neither call nor final answer the content is the text as it is, up to an `Observation:` line.
        """
        parser = self.parser(tools, opened)
        events = [*parser.feed(text), *parser.flush()]
        parsed = folded(events)
        if any(isinstance(event, CallStart | CallInvalid) for event in events):
            return parsed._replace(content=_said(events))
        if any(found[2].lower() == "final answer" for found in _OBSERVATION.finditer(text)):
            return parsed
        observed = next((found for found in _OBSERVATION.finditer(text) if found[2].lower() == "observation"), None)
        return parsed._replace(content=text[: observed.start() if observed else None].strip())

    def dump(self, calls: Iterable[ToolCall]) -> str:
        """One call as the model would write it. UnsupportedInput for more: each waits for its result."""
        call, *others = calls
        if others:
            raise UnsupportedInput(
                f"A ReAct answer makes one call, and here are {1 + len(others)}: write one at a time."
            )
        return f"Thought: \nAction: {call.name}\nAction Input: {arguments_object(call)}"

    def ways(self, grammar: CallGrammar, tools: Sequence[Tool]) -> Sequence[Way]:
        """One call from the label of its action on; a demanded one has a thought before it."""
        label = "\nAction Input: "
        call = grammar.rule(*(f"{literal(' ', tool.name, label)} {grammar.arguments(tool)}" for tool in tools))
        opening = "" if grammar.opened.strip() else literal("Thought:")
        thought = grammar.terminal(f"/ [^\\n]{{1,{_LONGEST_THOUGHT}}}/")
        grammar.closes("\nAction:")
        demanded = Way("Action:", call, "line", before=f'{opening} {thought} "\\n"')
        return [demanded, *(Way(label, call, "line", offered=False) for label in _BOLD_ACTIONS)]


def _said(events: Iterable[Event]) -> str:
    """Text and thoughts, each stretch of one kind on lines of its own."""
    written = (event for event in events if isinstance(event, Text | Reasoning))
    stretches = ("".join(event.text for event in run).strip() for _, run in groupby(written, type))
    return "\n".join(stretch for stretch in stretches if stretch)


class _Reader:
    def __init__(self, source: Source, out: Output, ends: tuple[str, ...]) -> None:
        self._source = source
        self._out = out
        self._ends = ends

    def read(self, give: Callable[[str], None]) -> Reading[None]:
        """Read line by line; `give` takes what has no label of its own."""
        while (yield from self._source.peek()):
            label, written = yield from self._label()
            if label == "thought":
                give = self._out.reasoning
            elif label == "final answer":
                yield from self._answer()
                return
            elif label == "observation":
                self._out.stop()
                yield from self._to_next_label()
                continue
            elif label == "action":
                text = yield from self._action(written)
                if text is None:
                    return
                give = self._out.text
                give(text)
                continue
            else:
                give(written)
            if (yield from self._line(give)):
                return

    def _answer(self) -> Reading[None]:
        """The answer behind its label, up to an observation."""
        while True:
            if (yield from self._line(self._out.text)):
                return
            label, written = yield from self._label()
            if label == "observation":
                self._out.stop()
                return
            self._out.text(written)

    def _line(self, give: Callable[[str], None]) -> Reading[bool]:
        """Give the rest of a line with its end; True when the answer is over."""
        mark = yield from self._source.text_until(("\n", *self._ends), give)
        if mark == "\n":
            give(self._source.take(1))
        return mark != "\n"

    def _label(self) -> Reading[tuple[str | None, str]]:
        """Read the label at the start of a line: its name, None when there is none, and the text that was read."""
        while True:
            rest = self._source.waiting
            found = _LABEL.match(rest)
            if found and (self._source.ended or _is_whole(found, rest)):
                return found[2].lower(), self._source.take(found.end())
            if self._source.ended or not (found or _may_become_label(rest)):
                return None, ""
            yield from self._source.more()

    def _to_next_label(self) -> Reading[None]:
        """Leave out what stands behind an observation."""
        while not (yield from self._line(lambda _: None)):
            self._source.keep()
            label, _ = yield from self._label()
            if label is not None and label != "observation":
                self._source.rewind()
                return
            self._source.kept()

    def _action(self, written: str) -> Reading[str | None]:
        """Read a call; None when there is one, else the text that looked like the beginning of one."""
        pieces = [written]
        if (yield from self._line(pieces.append)):
            return "".join(pieces)
        name = "".join(pieces[1:]).strip().strip("`*")
        label, text = yield from self._label()
        pieces.append(text)
        if label != "action input" or not self._out.declared(name):
            return "".join(pieces)
        yield from self._arguments(name)
        self._out.stop()
        return None

    def _arguments(self, name: str) -> Reading[None]:
        raw: list[str] = []
        repaired: list[str] = []
        space = yield from self._source.skip_space()
        raw.append(space)
        yield from self._fence()
        if (yield from self._source.peek()) == "{":
            self._source.keep()
            whole = yield from read_value(self._source, (), repaired.append)
            raw.append(self._source.kept())
            if whole and _is_object("".join(repaired)):
                self._out.call(name, "".join(repaired))
                return
        yield from self._source.text_until((), raw.append)
        text = _before_label("".join(raw)).strip()
        if not text:
            self._out.call(name, "{}")
            return
        index = self._out.start(name)
        self._out.invalid(text, "the action input is no JSON object", index)

    def _fence(self) -> Reading[None]:
        """Leave out the fence of a code block that the arguments stand in."""
        if (yield from self._source.begins_with("```")):
            yield from self._source.text_until(("\n", "{"), lambda _: None)
            yield from self._source.skip_space()


def _is_whole(found: re.Match[str], rest: str) -> bool:
    """Whether more text could make the label longer: closing stars behind the colon."""
    return found.end() < len(rest) and not (found[1] and rest[found.end() :] in ("*", "_"))


def _may_become_label(rest: str) -> bool:
    start = rest.lstrip(" \t")
    bare = start.lstrip(_BOLD).lower()
    if len(start) - len(bare) > 2 or "\n" in start:
        return False
    return any(
        label.startswith(bare) or (bare.startswith(label) and not bare[len(label) :].strip(_BOLD + " \t"))
        for label in _LABELS
    )


def _before_label(text: str) -> str:
    """The text up to the next label line."""
    found = _OBSERVATION.search(text)
    return text[: found.start()] if found else text


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


FORMATS = (QwenReact(),)
