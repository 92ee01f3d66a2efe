from __future__ import annotations

import pytest

from chatlocal.engine.families.turns import join_repeated, merge_system, repeated_role
from chatlocal.engine.messages import ChatMessage, ToolCall


def turns(*pairs: tuple[str, str]) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(role, text) for role, text in pairs)


@pytest.mark.parametrize(
    ("given", "merged"),
    [
        (turns(("system", "S"), ("user", "U")), turns(("user", "S\n\nU"))),
        (turns(("system", "S"), ("system", "T"), ("user", "U")), turns(("user", "S\n\nT\n\nU"))),
        (
            turns(("user", "U"), ("assistant", "A"), ("system", "S"), ("user", "V")),
            turns(("user", "U"), ("assistant", "A"), ("user", "S\n\nV")),
        ),
        (turns(("user", "U"), ("system", "S")), turns(("user", "U\n\nS"))),
        (turns(("system", "S")), turns(("user", "S"))),
        (turns(("system", ""), ("user", "U")), turns(("user", "U"))),
    ],
)
def test_system_texts_go_into_user_turns(given: tuple[ChatMessage, ...], merged: tuple[ChatMessage, ...]) -> None:
    assert merge_system(given, lambda index: True) == merged


def test_a_system_turn_that_is_taken_stays() -> None:
    given = turns(("system", "S"), ("user", "U"), ("system", "T"), ("user", "V"))
    assert merge_system(given, lambda index: index > 0) == turns(("system", "S"), ("user", "U"), ("user", "T\n\nV"))


def test_turns_of_one_role_are_joined_a_blank_line_apart() -> None:
    given = turns(("user", "a"), ("user", "b"), ("assistant", "c"), ("assistant", "d"), ("user", "e"))
    assert repeated_role(given) == 1
    assert join_repeated(given) == turns(("user", "a\n\nb"), ("assistant", "c\n\nd"), ("user", "e"))


def test_tool_results_and_calls_are_never_joined() -> None:
    calling = ChatMessage("assistant", "", (ToolCall("1", "f", "{}"),))
    given = (*turns(("user", "u")), calling, *turns(("tool", "1"), ("tool", "2"), ("assistant", "a")), calling)
    assert repeated_role(given) is None
    assert join_repeated(given) == given


def test_reasoning_is_joined_too() -> None:
    joined = join_repeated((ChatMessage("assistant", "a", reasoning="x"), ChatMessage("assistant", "b")))
    assert joined == (ChatMessage("assistant", "a\n\nb", reasoning="x"),)
