"""Free text with markers in it, one of several specs, and answers behind a model's thinking."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch
from tokenizers import AddedToken

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Constraint, ConstraintState, Opening, Spec
from chatlocal.engine.errors import UnsupportedInput
from tests.engine.constraints.vocabularies import with_added
from tests.engine.constraints.walking import spelled, walk
from tests.tiny import tiny_tokenizer

TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
NUMBER = constraints.json_schema({"type": "integer"})
CALL = constraints.marked('start: "\\n" args close', {"close": "</tool_call>"}, {"args": {"const": [1]}})


def encoded(text: str, tokenizer: Any) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def compiled(spec: Spec, tokenizer: Any) -> Constraint:
    return constraints.compile(spec, tokenizer)


def followed(spec: Spec, text: str, tokenizer: Any) -> ConstraintState:
    """The state after a text, each id of which the mask allowed."""
    state = compiled(spec, tokenizer).start()
    for id in encoded(text, tokenizer):
        assert state.mask()[id], (text, tokenizer.convert_ids_to_tokens(id))
        state.advance(id)
    return state


def can_follow(state: ConstraintState, tokenizer: Any) -> set[str]:
    texts = spelled(tokenizer)
    return {texts[int(id)].decode(errors="replace") for id in state.mask().nonzero().flatten()}


@pytest.mark.parametrize("tags", [(), TAGS], ids=["spelled", "tokens"])
def test_a_marker_is_found_as_a_token_and_spelled(tags: tuple[str, ...]) -> None:
    tokenizer = with_added(*tags)
    spec = constraints.free_text(Opening("<tool_call>", CALL))
    state = followed(spec, "I look it up. <tool_call>", tokenizer)
    assert can_follow(state, tokenizer) == {"\n"}
    assert not state.may_end
    state = followed(spec, "I look it up. <tool_call>\n[1]</tool_call>", tokenizer)
    assert state.done


def test_a_control_token_is_written_by_its_id_where_there_is_one() -> None:
    plain, tagged = tiny_tokenizer(), with_added(*TAGS)
    spec = constraints.free_text(Opening("<tool_call>", CALL))
    assert can_follow(followed(spec, "<tool_call>\n[1]", plain), plain) == {"<"}
    assert can_follow(followed(spec, "<tool_call>\n[1]", tagged), tagged) == {"</tool_call>"}


def test_free_text_may_be_anything_and_end_anywhere() -> None:
    tokenizer = with_added(*TAGS)
    state = compiled(constraints.free_text(Opening("<tool_call>", CALL)), tokenizer).start()
    width = len(tokenizer)
    for id in (*encoded("1 < 2 你 <tool_ca", tokenizer), tokenizer.convert_tokens_to_ids("<think>")):
        assert state.may_end
        assert int(state.mask().sum()) >= width - 3  # but a token that holds a marker's end and more
        state.advance(id)
    assert constraints.compile(constraints.free_text(Opening("<tool_call>", CALL)), tokenizer).accepts("no marker")


def test_required_text_ends_behind_its_marker_only() -> None:
    tokenizer = tiny_tokenizer()
    spec = constraints.after("=>", NUMBER)
    state = followed(spec, "so ", tokenizer)
    assert not state.may_end
    assert tokenizer.eos_token_id not in state.mask().nonzero().flatten().tolist()
    assert followed(spec, "so =>42", tokenizer).may_end
    assert not compiled(spec, tokenizer).accepts("so 42")
    assert compiled(spec, tokenizer).accepts("so =>42")


def test_no_token_runs_over_the_end_of_a_marker() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken('>{"', special=False, normalized=False)])
    spec = constraints.after("<go>", constraints.json_schema({"const": {"a": 1}}))
    over = tokenizer.convert_tokens_to_ids('>{"')
    assert compiled(spec, tokenizer).start().mask()[over]  # elsewhere it is text as any other
    state = followed(spec, "x <go", tokenizer)
    assert not state.mask()[over]
    with pytest.raises(UnsupportedInput, match="cannot follow"):
        state.advance(over)
    state.advance(encoded(">", tokenizer)[0])
    assert can_follow(state, tokenizer) <= {"{", '{"'}


@pytest.mark.parametrize(
    ("place", "text", "counts"),
    [
        ("anywhere", "a go:", True),
        ("line", "a go:", False),
        ("line", "go:", True),
        ("line", "a\n go:", True),
        ("line", "a\nb\n\tgo:", True),
        ("line", "a\nb go:", False),
        ("start", "go:", True),
        ("start", " \n go:", True),
        ("start", "a\ngo:", False),
        ("start", "ago:", False),
    ],
)
def test_a_marker_counts_in_its_place(place: Any, text: str, counts: bool) -> None:
    tokenizer = tiny_tokenizer()
    spec = constraints.free_text(Opening("go:", NUMBER, place))
    for ids in (encoded(text, tokenizer), [encoded(char, tokenizer)[0] for char in text]):
        state = compiled(spec, tokenizer).start()
        for id in ids:
            state.advance(id)
        assert state.may_end is not counts
        assert (" " in can_follow(state, tokenizer)) is not counts
    assert compiled(spec, tokenizer).accepts(f"{text}x") is not counts


def test_the_longest_of_two_markers_that_end_together() -> None:
    tokenizer = tiny_tokenizer()
    spec = constraints.free_text(
        Opening("b:", constraints.choice(["short"])), Opening("ab:", constraints.choice(["long"]))
    )
    assert compiled(spec, tokenizer).accepts("cb:short")
    assert compiled(spec, tokenizer).accepts("cab:long")
    assert not compiled(spec, tokenizer).accepts("cab:short")


def test_rolling_back_gives_the_same_masks() -> None:
    tokenizer = with_added(*TAGS)
    specs = [
        constraints.free_text(Opening("<tool_call>", CALL), Opening("#", NUMBER, "line")),
        constraints.either(constraints.choice(["one", "on it"]), NUMBER, constraints.choice(["only"])),
        constraints.thinking(NUMBER, "<think>", "</think>", open=False),
        constraints.thinking(NUMBER, "<think>", "</think>", open=True),
    ]
    rng = random.Random(0)
    for spec in specs:
        for _ in range(30):
            state = compiled(spec, tokenizer).start()
            masks = [state.mask()]
            while not state.done and len(masks) < 25:
                allowed = masks[-1].nonzero().flatten().tolist()
                tags = [id for id in allowed if tokenizer.convert_ids_to_tokens(id) in TAGS]
                state.advance(rng.choice(tags if tags and rng.random() < 0.3 else allowed))
                masks.append(torch.zeros_like(masks[0]) if state.done else state.mask())
            back = rng.randrange(1, len(masks))
            state.rollback(back)
            assert torch.equal(state.mask(), masks[-1 - back])


def test_one_of_several_specs() -> None:
    tokenizer = tiny_tokenizer()
    spec = constraints.either(constraints.choice(["one", "on it"]), NUMBER)
    constraint = compiled(spec, tokenizer)
    assert [constraint.accepts(text) for text in ("one", "on it", "17", "o", "one17")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    state = followed(spec, "on", tokenizer)
    assert {"e", " "} <= can_follow(state, tokenizer)
    assert "7" not in can_follow(state, tokenizer)
    assert compiled(constraints.either(NUMBER), tokenizer) is compiled(NUMBER, tokenizer)
    assert {walk(constraint, tokenizer, seed)[:1] in "o-0123456789" for seed in range(20)} == {True}


def test_forced_text_of_several_specs_is_what_they_share() -> None:
    tokenizer = tiny_tokenizer()
    constraint = compiled(constraints.either(constraints.choice(["abc"]), constraints.regex("abd+")), tokenizer)
    assert constraint.start().forced_bytes() == b"ab"


@pytest.mark.parametrize("tags", [(), TAGS], ids=["spelled", "tokens"])
def test_thinking_that_has_begun_ends_before_the_answer(tags: tuple[str, ...]) -> None:
    tokenizer = with_added(*tags)
    spec = constraints.thinking(NUMBER, "<think>", "</think>", open=True)
    assert not followed(spec, "17 is not", tokenizer).may_end
    assert followed(spec, "is it? 1 or 2</think>17", tokenizer).may_end
    state = followed(spec, "hm</think>\n\n17", tokenizer)
    assert state.may_end
    assert can_follow(state, tokenizer) - {"<|im_end|>"} <= {str(digit) for digit in range(10)} | {"42"}


def test_a_model_may_think_first_or_not() -> None:
    tokenizer = with_added(*TAGS)
    spec = constraints.thinking(NUMBER, "<think>", "</think>", open=False)
    assert "<think>" in can_follow(followed(spec, "", tokenizer), tokenizer)
    assert followed(spec, "17", tokenizer).may_end
    assert "<think>" not in can_follow(followed(spec, "1", tokenizer), tokenizer)
    assert followed(spec, "<think>1 </think>17", tokenizer).may_end
    plain = tiny_tokenizer()  # without the token there is no telling a thought from an answer
    assert "<" not in can_follow(followed(spec, "", plain), plain)


def test_line_breaks_behind_a_thought_come_to_an_end() -> None:
    tokenizer = with_added(*TAGS)
    spec = constraints.thinking(NUMBER, "<think>", "</think>", open=True)
    state = followed(spec, "</think>\n\n", tokenizer)
    assert "\n" not in can_follow(state, tokenizer)


def test_specs_of_specs_can_be_written_down() -> None:
    spec = constraints.thinking(
        constraints.either(NUMBER, constraints.free_text(Opening("#", CALL, "start"))), "<think>", "</think>", open=True
    )
    assert Spec.from_json(spec.to_json()) == spec
    assert hash(Spec.from_json(json.dumps(json.loads(spec.to_json())))) == hash(spec)


@pytest.mark.parametrize("markers", ["", [], ["a", ""], [3]])
def test_markers_have_characters(markers: Any) -> None:
    with pytest.raises(UnsupportedInput, match="markers"):
        constraints.after(markers, NUMBER)


def test_what_schemas_leave_is_reported_through_all_of_it() -> None:
    unique = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    inner = constraints.marked("start: list", {}, {"list": unique}, ["pattern"])
    for spec in (
        inner,
        constraints.either(NUMBER, inner),
        constraints.free_text(Opening("x", inner)),
        constraints.thinking(inner, "<think>", "</think>", open=True),
    ):
        assert compiled(spec, tiny_tokenizer()).left_to_validation == ("pattern", "uniqueItems at /")
