"""What Mistral's formats want of a conversation: mistral-common's validator.py and normalize.py, for text.

Some is read that mistral-common refuses: a system message behind an answer (with merge_system) and call ids of other
forms (see mistral_call_ids.py). Some is refused that it lets pass: a result that answers no call, and tools that would
go unwritten. Parts of a text are joined as everywhere here, where it puts blank lines between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chatlocal.engine.errors import TemplateError, UnsupportedRole
from chatlocal.engine.families import turns as fitting
from chatlocal.engine.families.mistral_results import match_results, refuse_unanswered, with_valid_ids
from chatlocal.engine.families.mistral_tools import check_name
from chatlocal.engine.families.mistral_turns import join_turns, misplaced_systems, repeated
from chatlocal.engine.families.native import Chat, NativeFamily
from chatlocal.engine.families.recognition import MadeFor
from chatlocal.engine.messages import ChatMessage


class MistralFamily(NativeFamily):
    """The base of the versions of the format.

    `begins_with_user`: an empty user turn is put before a conversation that begins with another. `text_with_calls`: an
    answer may hold both. `trims_answers`: spaces at an answer's end are cut off. `call_ids`: calls and results are
    known by ids.
    """

    stop_strings = ("</s>",)
    begins_with_user: bool = True
    text_with_calls: bool = False
    trims_answers: bool = True
    call_ids: bool = True

    def __init__(self, name: str, *made_for: MadeFor) -> None:
        self.name = name
        self.made_for = made_for

    def check_asking(self, chat: Chat) -> None:
        """TemplateError when an answer is asked for where none can follow: [/INST] and results alone ask for one."""
        if not chat.add_generation_prompt:
            return
        if chat.turns[-1].role == "assistant":
            raise TemplateError(
                f"The {self.name} format cannot ask for an answer right behind one, and the last message is an"
                " assistant's: end with a user message or a tool result, pass continue_final_message=True to go on with"
                " that answer, or add_generation_prompt=False to have the conversation as it is."
            )
        refuse_unanswered(chat.turns, self.name)

    def _fit(self, turns: tuple[ChatMessage, ...], merge_system: bool, strict: bool) -> tuple[ChatMessage, ...]:
        for index, turn in enumerate(turns):
            self._check(index, turn)
        if turns[0].role == "assistant" and (len(turns) == 1 or turns[0].tool_calls):
            raise TemplateError(
                f"The {self.name} format wants a question before an answer, and message 0 is an assistant's: put a"
                " user message before it."
            )
        turns = match_results(turns, self.name, by_id=self.call_ids)
        turns = self._without_misplaced_systems(turns, merge_system)
        if strict:
            self._check_order(turns)
        turns = join_turns(turns)
        self._check_answers(turns)
        if self.begins_with_user and _first_role(turns) != "user":
            turns = (ChatMessage("user", ""), *turns)
        if self.trims_answers:
            turns = tuple(_trimmed(turn) if turn.role == "assistant" else turn for turn in turns)
        return with_valid_ids(turns) if self.call_ids else turns

    def _check(self, index: int, turn: ChatMessage) -> None:
        super()._check(index, turn)
        for call in turn.tool_calls:
            check_name(call.name, self.name, f"a call of message {index}")
        if turn.role == "tool" and turn.name is not None:
            check_name(turn.name, self.name, f"message {index}")
        if turn.role == "assistant" and not self.text_with_calls and bool(turn.text) == bool(turn.tool_calls):
            has, out = ("both", "one of them") if turn.text else ("neither", "the message")
            raise TemplateError(
                f"The {self.name} format wants text or tool calls in an assistant message, and message {index} has"
                f" {has}: leave {out} out."
            )

    def _without_misplaced_systems(self, turns: tuple[ChatMessage, ...], merge: bool) -> tuple[ChatMessage, ...]:
        misplaced = misplaced_systems(turns)
        if misplaced and not merge:
            raise UnsupportedRole(
                f"The {self.name} format has no place for the system message at index {min(misplaced)}, behind an"
                " answer: put its text into a user message, or pass merge_system=True to have that done."
            )
        return fitting.merge_system(turns, misplaced.__contains__) if misplaced else turns

    def _check_order(self, turns: Sequence[ChatMessage]) -> None:
        index = repeated(turns)
        if index is not None:
            raise TemplateError(
                f"The {self.name} format wants user and assistant in turns, and message {index} is another"
                f" {turns[index].role} message: join it with the one before it."
            )
        if self.begins_with_user and _first_role(turns) != "user":
            raise TemplateError(f"The {self.name} format wants a user message first: put one there.")

    def _check_answers(self, turns: Sequence[ChatMessage]) -> None:
        """What answers that were joined come to."""
        for turn in turns:
            if turn.role != "assistant":
                continue
            if not turn.text and not turn.tool_calls:
                raise TemplateError(
                    f"The {self.name} format has no empty answer, and there is an assistant message with neither text"
                    " nor tool calls: leave it out."
                )
            if turn.text and turn.tool_calls and not self.text_with_calls:
                raise TemplateError(
                    f"The {self.name} format has no answer with text and tool calls, and an assistant message with"
                    f" calls comes right behind the text {turn.text[:40]!r}: leave one of them out."
                )


def _first_role(turns: Sequence[ChatMessage]) -> str:
    return next((turn.role for turn in turns if turn.role != "system"), "")


def _trimmed(turn: ChatMessage) -> ChatMessage:
    return replace(turn, content=turn.text.rstrip(" "))
