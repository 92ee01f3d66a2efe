"""One text under a constraint: masks, ends, bans, forced text, rollback."""

from __future__ import annotations

import random

import pytest
import torch

from chatlocal.engine import constraints
from chatlocal.engine.constraints.vocabulary import read_vocabulary, token_bytes
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from tests.engine.constraints.vocabularies import lacking, sentencepiece, with_added
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_tokenizer

TOKENIZER = tiny_tokenizer()
FIELDS = {"name": {"type": "string"}, "age": {"type": "integer"}}
PERSON = {"type": "object", "properties": FIELDS, "required": ["name"]}
LARK = 'start: "(" (start | /[a-z]/)* ")"'

SPECS = {
    "json_schema": constraints.json_schema(PERSON),
    "regex": constraints.regex(r"\d+(\.\d+)?|[a-z]{3,5}!"),
    "choice": constraints.choice(["yes", "yes please", "no"]),
    "grammar": constraints.grammar(LARK),
}
TEXTS = {
    "json_schema": '{"name": "Harry", "age": 13}',
    "regex": "12.5",
    "choice": "yes please",
    "grammar": "((a)b)",
}
ALL_KINDS = pytest.mark.parametrize("kind", SPECS)


def ids_of(text, tokenizer=TOKENIZER):
    return tokenizer.encode(text, add_special_tokens=False)


def single(text, tokenizer=TOKENIZER):
    """Ids of one byte each."""
    tokens = token_bytes(tokenizer)
    return [tokens.index(bytes([byte])) for byte in text.encode()]


@ALL_KINDS
def test_a_mask_is_a_bool_tensor_as_wide_as_the_logits(kind):
    constraint = constraints.compile(SPECS[kind], TOKENIZER, vocab_size=600)
    mask = constraint.start().mask()
    assert mask.dtype == torch.bool
    assert mask.shape == (600,)
    assert mask.device.type == "cpu"
    assert mask.any()
    assert not mask[len(TOKENIZER) :].any()


@ALL_KINDS
def test_logits_narrower_than_the_tokenizer(kind):
    constraint = constraints.compile(SPECS[kind], TOKENIZER, vocab_size=300)
    state = constraint.start()
    assert state.mask().shape == (300,)
    with pytest.raises(UnsupportedInput):
        state.advance(301)
    assert constraint.accepts(walk(constraint, TOKENIZER, seed=3))


@ALL_KINDS
def test_the_end_is_allowed_exactly_where_the_text_is_whole(kind):
    end = TOKENIZER.eos_token_id
    constraint = constraints.compile(SPECS[kind], TOKENIZER)
    state = constraint.start()
    text = b""
    for id in single(TEXTS[kind]):
        assert bool(state.mask()[end]) == state.may_end == constraint.accepts(text.decode())
        state.advance(id)
        text += token_bytes(TOKENIZER)[id]
    assert state.may_end
    state.advance(end)
    assert state.done
    assert torch.nonzero(state.mask()).flatten().tolist() == [end]
    for after in (end, 40):
        with pytest.raises(UnsupportedInput):
            state.advance(after)


@ALL_KINDS
def test_special_and_control_tokens_never_come(kind):
    tokenizer = with_added("<tool_call>", "<think>", "[INST]")
    vocabulary = read_vocabulary(tokenizer)
    constraint = constraints.compile(SPECS[kind], tokenizer)
    rng = random.Random(1)
    state = constraint.start()
    for _ in range(30):
        allowed = set(torch.nonzero(state.mask()).flatten().tolist())
        assert not (allowed & vocabulary.control) - {tokenizer.eos_token_id}
        words = sorted(allowed - {tokenizer.eos_token_id})
        if not words:
            break
        state.advance(rng.choice(words))
    with pytest.raises(UnsupportedInput):
        state.advance(tokenizer.convert_tokens_to_ids("<think>"))


@pytest.mark.parametrize("text", ["<tool_call>", "<|im_end|>", "[INST]<think>"])
def test_control_text_is_spelled_with_ordinary_tokens(text):
    tokenizer = with_added("<tool_call>", "<think>", "[INST]")
    for spec in (constraints.json_schema({"const": text}), constraints.choice([text])):
        constraint = constraints.compile(spec, tokenizer)
        assert text in walk(constraint, tokenizer, seed=0)


def test_several_end_ids():
    ends = [0, 2, 40]
    constraint = constraints.compile(SPECS["choice"], TOKENIZER, end_ids=ends)
    state = constraint.start()
    assert not state.mask()[ends].any()
    for id in single("no"):
        state.advance(id)
    assert torch.nonzero(state.mask()).flatten().tolist() == ends
    assert state.done


def test_an_end_id_never_stands_for_text():
    quote = token_bytes(TOKENIZER).index(b"x")
    constraint = constraints.compile(constraints.regex("[a-z]{5}"), TOKENIZER, end_ids=[quote])
    assert not constraint.start().mask()[quote]
    with pytest.raises(UnsupportedSchema):
        constraints.compile(constraints.choice(["x"]), TOKENIZER, end_ids=[quote])


@pytest.mark.parametrize("end_ids", [[], [-1], [600]])
def test_end_ids_must_be_among_the_logits(end_ids):
    with pytest.raises(UnsupportedInput, match="end ids"):
        constraints.compile(SPECS["choice"], TOKENIZER, end_ids=end_ids)


@ALL_KINDS
def test_a_refused_id_changes_nothing(kind):
    state = constraints.compile(SPECS[kind], TOKENIZER).start()
    first, *rest = single(TEXTS[kind])
    state.advance(first)
    before = state.mask()
    for wrong in (*single("Z"), TOKENIZER.eos_token_id, 1, -1, 10**6):
        if not (0 <= wrong < len(before)) or not before[wrong]:
            with pytest.raises(UnsupportedInput, match="cannot follow"):
                state.advance(wrong)
    assert torch.equal(state.mask(), before)
    for id in rest:
        state.advance(id)
    assert state.may_end


@ALL_KINDS
def test_rollback_gives_the_earlier_masks_back(kind):
    constraint = constraints.compile(SPECS[kind], TOKENIZER)
    ids = [*single(TEXTS[kind]), TOKENIZER.eos_token_id]
    state = constraint.start()
    masks = [state.mask()]
    for id in ids:
        state.advance(id)
        masks.append(state.mask())
    for back in (1, 2, len(ids) // 2):
        state.rollback(back)
        place = len(ids) - back
        assert torch.equal(state.mask(), masks[place])
        for id in ids[place:]:
            state.advance(id)
    state.rollback(len(ids))
    assert torch.equal(state.mask(), masks[0])
    with pytest.raises(UnsupportedInput):
        state.rollback(1)


def test_forced_bytes():
    state = constraints.compile(constraints.json_schema(PERSON), TOKENIZER).start()
    assert state.forced_bytes() == b'{"name": "'
    for id in single('{"name": "Bo"'):
        state.advance(id)
    assert state.forced_bytes() == b""
    for id in single(', "'):
        state.advance(id)
    assert state.forced_bytes() == b'age": '
    choice = constraints.compile(SPECS["choice"], TOKENIZER).start()
    assert choice.forced_bytes() == b""
    choice.advance(*single("n"))
    assert choice.forced_bytes() == b"o"


def test_any_spelling_of_forced_text_is_taken():
    for spelling in (single, ids_of):
        state = constraints.compile(constraints.json_schema(PERSON), TOKENIZER).start()
        for id in spelling('{"name": "Bo", "age": 3}'):
            state.advance(id)
        assert state.done


def test_states_do_not_know_of_each_other():
    constraint = constraints.compile(SPECS["json_schema"], TOKENIZER)
    one, other = constraint.start(), constraint.start()
    before = other.mask()
    for id in single('{"name": "x'):
        one.advance(id)
    assert torch.equal(other.mask(), before)


def test_a_mask_is_a_tensor_of_its_own():
    state = constraints.compile(SPECS["regex"], TOKENIZER).start()
    first = state.mask()
    kept = first.clone()
    first.fill_(False)
    assert torch.equal(state.mask(), kept)


def test_a_demanded_text_without_tokens_is_refused_when_compiled():
    tokenizer = lacking("q")
    for schema in ({"enum": ["ok", "aqb"]}, {"type": "object", "properties": {"q": {}}, "required": ["q"]}):
        with pytest.raises(UnsupportedSchema, match="no tokens"):
            constraints.compile(constraints.json_schema(schema), tokenizer)
    for spec in (constraints.regex("aqb"), constraints.choice(["aqb"])):
        with pytest.raises(UnsupportedSchema) as caught:
            constraints.compile(spec, tokenizer)
        assert caught.value.keyword == "vocabulary"


def test_ways_that_the_vocabulary_cannot_finish_are_not_entered():
    tokenizer = lacking("q")
    for spec in (constraints.regex("a(bq|c)d|xq+"), constraints.choice(["acd", "abq", "q"])):
        constraint = constraints.compile(spec, tokenizer)
        assert {walk(constraint, tokenizer, seed) for seed in range(10)} == {"acd"}


def test_a_dead_end_is_a_named_error_and_no_empty_mask():
    tokenizer = lacking("q")
    state = constraints.compile(constraints.grammar('start: "a" "q" "b"'), tokenizer).start()
    state.advance(int(state.mask().int().argmax()))
    with pytest.raises(UnsupportedSchema) as caught:
        state.mask()
    assert caught.value.keyword == "vocabulary"


@ALL_KINDS
def test_sentencepiece_vocabularies(kind):
    tokenizer = sentencepiece()
    constraint = constraints.compile(SPECS[kind], tokenizer)
    for seed in range(5):
        assert constraint.accepts(walk(constraint, tokenizer, seed))


def test_a_model_that_loves_newlines_still_ends():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 999}}, "required": ["a"]}
    constraint = constraints.compile(constraints.json_schema(schema), TOKENIZER)
    tokens = token_bytes(TOKENIZER)
    state = constraint.start()
    text = b""
    for _ in range(64):
        allowed = torch.nonzero(state.mask()).flatten().tolist()
        id = max(allowed, key=lambda id: (tokens[id].isspace(), len(tokens[id]), id))
        if id in constraint.end_ids:
            break
        state.advance(id)
        text += tokens[id]
    assert state.done
    constraints.validation.check(schema, text.decode())
    assert b"\n" not in text


def test_the_embedded_model(embedded_tokenizer):
    for kind, spec in SPECS.items():
        constraint = constraints.compile(spec, embedded_tokenizer, vocab_size=49_216)
        for seed in range(3):
            assert constraint.accepts(walk(constraint, embedded_tokenizer, seed)), kind
    smileys = constraints.compile(constraints.regex("[🫠-🫶]+"), embedded_tokenizer)
    assert walk(smileys, embedded_tokenizer, seed=0)
