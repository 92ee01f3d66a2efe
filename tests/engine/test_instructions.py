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


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        (DOG, ()),
        ({"type": "object", "properties": {"output": DOG}}, ("output",)),
        ({"type": "object", "properties": {"info": {"type": "array", "items": DOG}}}, ("info", 0)),
        ({"type": "array", "items": {"$ref": "#/$defs/Dog"}, "$defs": {"Dog": DOG}}, (0,)),
    ],
)
def test_worked_examples_are_wrapped_as_the_answer_is(schema: dict[str, Any], path: tuple[Any, ...]) -> None:
    asked = ask_for_json([{"role": "user", "content": "Rex barks."}], schema)
    answers = [json.loads(turn.text) for turn in asked if turn.role == "assistant"]
    assert len(answers) == 2
    for answer in answers:
        for step in path:
            assert len(answer) == 1
            answer = answer[step]
        # A record of several values, none of them wrapped any further.
        assert len(answer) > 1
        assert not any(isinstance(value, (dict, list)) for value in answer.values())


def test_a_model_that_knows_json_schema_gets_the_schema_alone() -> None:
    [turn] = ask_for_json([{"role": "user", "content": "Rex barks."}], DOG, trained=True)
    text = turn.text.removeprefix("Rex barks.\n\n")
    assert validation.check({"type": "object"}, text[text.index("{") :]) == DOG


def test_parts_stay_parts() -> None:
    picture = Image("dog.png")
    [turn] = ask_for_json([ChatMessage("user", ("Who is this?", picture))], DOG, trained=True)
    assert turn.content is not None
    assert turn.content[:2] == ("Who is this?", picture)


def test_a_conversation_without_a_user_gets_one() -> None:
    asked = ask_for_json([{"role": "system", "content": "Invent a dog."}], DOG)
    assert asked[-1] == ChatMessage("user", WISH)
