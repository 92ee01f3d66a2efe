"""The request for an answer in a form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from chatlocal.engine.constraints import validation
from chatlocal.engine.instructions import ask_for_json
from chatlocal.engine.messages import ChatMessage, Image

DOG: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "description": "The dog's name"}},
    "required": ["name"],
}
DOGS: dict[str, Any] = {"type": "object", "properties": {"dogs": {"type": "array", "items": DOG}}}
KENNEL: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}, "dog": DOG}}
DOGS_WISH = "Answer as a JSON object with: dogs (a list, each an object with: name (The dog's name))"
WISH = "Answer as a JSON object with: name (The dog's name)"


def test_the_wish_ends_the_last_user_turn_and_examples_follow_the_system_text() -> None:
    asked = ask_for_json(
        [
            {"role": "system", "content": "You read about dogs."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi"},
            {"role": "user", "content": "Rex barks."},
        ],
        DOG,
    )
    assert asked[0] == ChatMessage("system", "You read about dogs.")
    assert [turn.role for turn in asked[1:5]] == ["user", "assistant", "user", "assistant"]
    assert asked[5:] == (
        ChatMessage("user", "Hello"),
        ChatMessage("assistant", "Hi"),
        ChatMessage("user", f"Rex barks.\n\n{WISH}"),
    )


def test_without_a_system_text_none_is_made_up() -> None:
    asked = ask_for_json([{"role": "user", "content": "Rex barks."}], DOG)
    assert asked[0].role == "user"
    assert all(turn.role != "system" for turn in asked)


@pytest.mark.parametrize("schema", [DOG, DOGS, KENNEL])
def test_examples_are_asked_for_as_the_answer_is(schema: dict[str, Any]) -> None:
    *turns, last = ask_for_json([{"role": "user", "content": "Rex barks."}], schema)
    assert [turn.role for turn in turns] == ["user", "assistant", "user", "assistant"]
    wishes_first = [turn.text.startswith("Answer as ") for turn in (*turns[::2], last)]
    assert wishes_first == [schema is not DOG] * 3
    for asked, answer in zip(turns[::2], turns[1::2], strict=True):
        assert all(f"{name} (" in asked.text for name in json.loads(answer.text))


def test_examples_can_be_left_out() -> None:
    assert ask_for_json([{"role": "user", "content": "Rex barks."}], DOG, examples=False) == (
        ChatMessage("user", f"Rex barks.\n\n{WISH}"),
    )


def test_a_model_that_knows_json_schema_gets_the_schema_alone() -> None:
    [turn] = ask_for_json([{"role": "user", "content": "Rex barks."}], DOG, trained=True)
    text = turn.text.removeprefix("Rex barks.\n\n")
    assert validation.check({"type": "object"}, text[text.index("{") :]) == DOG


def test_parts_stay_parts() -> None:
    picture = Image("dog.png")
    [turn] = ask_for_json([ChatMessage("user", ("Who is this?", picture))], DOG, trained=True)
    assert turn.content is not None
    assert turn.content[:2] == ("Who is this?", picture)
    turn = ask_for_json([ChatMessage("user", ("Who is this?", picture))], DOGS)[-1]
    assert turn.content == (f"{DOGS_WISH}\n\n", "Who is this?", picture)


def test_a_conversation_without_a_user_gets_one() -> None:
    asked = ask_for_json([{"role": "system", "content": "Invent a dog."}], DOG)
    assert asked[-1] == ChatMessage("user", WISH)
