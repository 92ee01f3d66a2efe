"""Mistral's formats, versions 1, 2, 3 and 7, as the vendor's package mistral-common writes them (its instruct.py).

Version 1 (Mistral 7B Instruct v0.1 and v0.2, Mixtral 8x7B) spells its marks in text; since version 2 they are control
tokens. Version 2 brought tools, version 3 (Mistral 7B Instruct v0.3, Mixtral 8x22B, and Nemo with its own vocabulary)
the ids of calls, version 7 (Mistral Large 2411) system turns. The pieces between marks are tokenized one by one.

Up to version 3 the system text goes into a user turn: the first in version 1, the last in 2 and 3. Tools are declared
before the last user turn. [/INST] and [/TOOL_RESULTS] ask for an answer, so `add_generation_prompt` adds nothing.
Reasoning of past turns is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from chatlocal.engine.errors import TemplateError
from chatlocal.engine.families.mistral_chat import MistralFamily
from chatlocal.engine.families.mistral_tools import called, declared, identified_result, named_result
from chatlocal.engine.families.mistral_turns import system_text
from chatlocal.engine.families.native import Chat
from chatlocal.engine.families.prompt import Markup, Part, Text
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.messages import ChatMessage


class MistralV1(MistralFamily):
    """Version 1: text alone between <s> and </s>."""

    special: tuple[str, ...] = ("<s>", "</s>")
    trims_answers = False
    call_ids = False

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        self.check_asking(chat)
        system = system_text(chat.turns)
        yield Markup("<s>")
        # Sentencepiece puts a space before every text; it shows where text stands before it.
        gap = ""
        for turn in chat.turns:
            if turn.role == "user":
                yield Text(f"[INST] {_below(system, turn.text)} [/INST]", own=True, gap=gap)
                system, gap = "", " "
            elif turn.role == "assistant":
                yield Text(turn.text, own=True, gap=gap)
                yield Markup("</s>")
                gap = ""


class MistralV2(MistralFamily):
    """Version 2: tools. Calls and results before the last user turn are left out, as the models were trained."""

    renders_tools = True
    tool_format = "mistral"
    roles = frozenset({"user", "assistant", "tool"})
    special: tuple[str, ...] = (
        *MistralV1.special,
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    )
    call_ids = False

    def write(self, chat: Chat) -> Iterator[Part]:
        """The parts of the prompt."""
        self.check_asking(chat)
        turns = self.remembered(chat.turns)
        last_user = max((index for index, turn in enumerate(turns) if turn.role == "user"), default=-1)
        if chat.tools and last_user < 0:
            raise TemplateError(
                f"The {self.name} format declares tools in front of the last user message, and there is none: add one,"
                " or leave the tools out."
            )
        yield Markup("<s>")
        for index, turn in enumerate(turns):
            if index == last_user:
                if chat.tools:
                    yield from _wrapped("[AVAILABLE_TOOLS]", declared(chat.tools, self.name), "[/AVAILABLE_TOOLS]")
                yield from _wrapped("[INST]", _below(self.system_in_user(turns), turn.text), "[/INST]")
            else:
                yield from self.turn(turn)

    def remembered(self, turns: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        """The turns to write. TemplateError for several results in a row among them: there is no form for these."""
        last_user = max(index for index, turn in enumerate(turns) if turn.role == "user")
        if any(one.role == other.role == "tool" for one, other in pairwise(turns[last_user:])):
            raise TemplateError(
                f"The {self.name} format takes one tool result after an answer, and there are several: ask for one"
                " call at a time, or choose a model with a later version of the format."
            )
        past = (turn for turn in turns[:last_user] if turn.role != "tool" and not turn.tool_calls)
        return (*past, *turns[last_user:])

    def system_in_user(self, turns: Sequence[ChatMessage]) -> str:
        """The system text for the last user turn."""
        return system_text(turns)

    def turn(self, turn: ChatMessage) -> Iterator[Part]:
        """Any turn but the last of the user's."""
        if turn.role == "user":
            yield from _wrapped("[INST]", turn.text, "[/INST]")
        elif turn.role == "assistant":
            yield from _piece(turn.text)
            if turn.tool_calls:
                yield Markup("[TOOL_CALLS]")
                yield from _piece(called(turn.tool_calls, ids=self.call_ids))
            yield Markup("</s>")
        elif turn.role == "tool":
            yield from self.result(turn)

    def result(self, turn: ChatMessage) -> Iterator[Part]:
        """A tool's result."""
        yield from _wrapped("[TOOL_RESULTS]", named_result(turn.name or "", turn.text), "[/TOOL_RESULTS]")


class MistralV3(MistralV2):
    """Version 3: calls and results have ids, and all of them are written."""

    call_ids = True

    def remembered(self, turns: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        """All turns."""
        return turns

    def result(self, turn: ChatMessage) -> Iterator[Part]:
        """A tool's result."""
        written = identified_result(turn.tool_call_id or "", turn.text)
        yield from _wrapped("[TOOL_RESULTS]", written, "[/TOOL_RESULTS]")


class MistralV7(MistralV3):
    """Version 7: system turns in their place, answers with text and calls, results as they are."""

    special = (*MistralV3.special, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]")
    begins_with_user = False
    text_with_calls = True

    def system_in_user(self, turns: Sequence[ChatMessage]) -> str:
        """None: it has turns of its own."""
        return ""

    def turn(self, turn: ChatMessage) -> Iterator[Part]:
        """Any turn but the last of the user's."""
        if turn.role == "system":
            yield from _wrapped("[SYSTEM_PROMPT]", turn.text, "[/SYSTEM_PROMPT]")
        else:
            yield from super().turn(turn)

    def result(self, turn: ChatMessage) -> Iterator[Part]:
        """A tool's result."""
        yield Markup("[TOOL_RESULTS]")
        yield from _piece(turn.tool_call_id or "")
        yield from _wrapped("[TOOL_CONTENT]", turn.text, "[/TOOL_RESULTS]")


def _wrapped(begin: str, text: str, end: str) -> Iterator[Part]:
    yield Markup(begin)
    yield from _piece(text)
    yield Markup(end)


def _piece(text: str) -> Iterator[Part]:
    if text:
        yield Text(text, own=True, gap="")


def _below(system: str, text: str) -> str:
    return f"{system}\n\n{text}" if system else text


_TEXT_ALONE = "its chat template gives one text, and the vendor's code tokenizes turn by turn"

FAMILIES = (
    MistralV1(
        "mistral",
        MadeFor(("mistral",), r"mistral-7b-instruct-v0\.[12]", dedicated=True, because=_TEXT_ALONE),
        MadeFor(("mistral",), vocab_sizes=(32_000,)),
    ),
    MistralV1(
        "mixtral",
        MadeFor(("mixtral",), "mixtral-8x7b-instruct", dedicated=True, because=_TEXT_ALONE),
        MadeFor(("mixtral",), vocab_sizes=(32_000,)),
    ),
    MistralV2("mistral_v2"),
    MistralV3("mistral_v3", MadeFor(("mistral", "mixtral"), vocab_sizes=(32_768,))),
    MistralV3("mistral-nemo", MadeFor(("mistral",), r"nemo|ministral-8b")),
    MistralV7("mistral_v7", MadeFor(("mistral",), r"large-instruct-2411|mistral-small-24b")),
)
