"""The cache, and the choice of a backend."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints import backends, compilation
from chatlocal.engine.constraints.backends import outlines
from chatlocal.engine.constraints.protocol import GrammarBackend, TooComplex
from chatlocal.engine.errors import UnsupportedInput, UnsupportedSchema
from tests.tiny import tiny_tokenizer

SPEC = constraints.choice(["yes", "no"])


def test_the_same_arguments_give_the_same_object():
    tokenizer = tiny_tokenizer()
    first = constraints.compile(SPEC, tokenizer)
    assert constraints.compile(constraints.choice(["yes", "no"]), tokenizer) is first
    assert constraints.compile(SPEC, tokenizer, vocab_size=len(tokenizer), end_ids=[tokenizer.eos_token_id]) is first


@pytest.mark.parametrize("change", [{"vocab_size": 600}, {"end_ids": [0]}, {"backend": "outlines"}])
def test_other_arguments_give_another(change):
    tokenizer = tiny_tokenizer()
    assert constraints.compile(SPEC, tokenizer, **change) is not constraints.compile(SPEC, tokenizer)


def test_another_tokenizer_or_an_added_token_gives_another():
    tokenizer = tiny_tokenizer()
    first = constraints.compile(SPEC, tokenizer)
    assert constraints.compile(SPEC, tiny_tokenizer()) is not first
    tokenizer.add_tokens(["zebra"])
    assert constraints.compile(SPEC, tokenizer).vocab_size == first.vocab_size + 1


def test_the_cache_is_bounded_and_drops_what_was_asked_for_longest_ago(monkeypatch):
    monkeypatch.setattr(compilation, "MAX_CONSTRAINTS", 2)
    tokenizer = tiny_tokenizer()
    specs = [constraints.choice([text]) for text in "abc"]
    first, second = (constraints.compile(spec, tokenizer) for spec in specs[:2])
    assert constraints.compile(specs[0], tokenizer) is first
    constraints.compile(specs[2], tokenizer)
    assert constraints.compile(specs[0], tokenizer) is first
    assert constraints.compile(specs[1], tokenizer) is not second


def test_the_cache_lets_go_of_the_tokenizer():
    tokenizer = tiny_tokenizer()
    constraints.compile(SPEC, tokenizer)
    constraints.compile(constraints.json_schema({"const": "abc"}), tokenizer)
    gone = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert gone() is None


def counting_backend(builds, result):
    def build(spec, tokens):
        builds.append(spec)
        threading.Event().wait(0.05)
        return result(spec, tokens)

    return GrammarBackend("counting", ("choice",), build)


def test_two_threads_compile_once(monkeypatch):
    builds = []
    monkeypatch.setattr(backends, "backends", lambda: {"counting": counting_backend(builds, outlines.BACKEND.build)})
    tokenizer = tiny_tokenizer()
    found = []
    threads = [threading.Thread(target=lambda: found.append(constraints.compile(SPEC, tokenizer))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_a_failure_is_raised_everywhere_and_not_kept(monkeypatch):
    def fail(spec, tokens):
        raise UnsupportedSchema("choice", "", "no")

    builds = []
    monkeypatch.setattr(backends, "backends", lambda: {"counting": counting_backend(builds, fail)})
    tokenizer = tiny_tokenizer()
    for count in (1, 2):
        with pytest.raises(UnsupportedSchema):
            constraints.compile(SPEC, tokenizer)
        assert len(builds) == count


def test_states_of_one_constraint_in_many_threads():
    tokenizer = tiny_tokenizer()
    constraint = constraints.compile(constraints.json_schema({"type": "array", "items": {"type": "string"}}), tokenizer)
    ids = tokenizer.encode('["a", "你好", "Harry"]', add_special_tokens=False)
    failures = []

    def follow():
        try:
            for _ in range(10):
                state = constraint.start()
                for id in ids:
                    state.mask()
                    state.advance(id)
                assert state.done
                assert constraint.accepts('["b"]')
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=follow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_next_backend_is_tried_where_one_meets_its_limits(monkeypatch):
    def meets_its_limits(spec, tokens):
        raise TooComplex("too large")

    first = GrammarBackend("first", ("choice",), meets_its_limits)
    second = GrammarBackend("second", ("regex", "choice"), outlines.BACKEND.build)
    monkeypatch.setattr(backends, "backends", lambda: {"first": first, "second": second})
    tokenizer = tiny_tokenizer()
    assert constraints.compile(SPEC, tokenizer).accepts("yes")
    with pytest.raises(TooComplex):
        constraints.compile(SPEC, tokenizer, backend="first")


@pytest.mark.parametrize("name", ["outlines", "nothing"])
def test_a_backend_that_cannot_is_refused(name):
    with pytest.raises(UnsupportedInput, match=name):
        constraints.compile(constraints.json_schema({"type": "integer"}), tiny_tokenizer(), backend=name)


def test_a_tokenizer_without_an_end_needs_end_ids():
    core = tiny_tokenizer().backend_tokenizer
    with pytest.raises(UnsupportedInput, match="end_ids"):
        constraints.compile(SPEC, core)
    assert constraints.compile(SPEC, core, end_ids=[2]).accepts("no")


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        constraints.regex("a+"),
        constraints.grammar('start: "a"'),
        constraints.json_schema({"enum": ["é", 1]}, closed=False, separators=(",", ":")),
    ],
)
def test_specs_are_values(spec):
    assert constraints.Spec.from_json(spec.to_json()) == spec
    assert hash(constraints.Spec.from_json(spec.to_json())) == hash(spec)
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(AttributeError):
        spec.kind = "regex"


def test_a_spec_keeps_the_declared_order():
    one, other = ({"properties": {key: {} for key in keys}} for keys in ("ab", "ba"))
    assert constraints.json_schema(one) != constraints.json_schema(other)


def test_odd_specs_are_refused():
    with pytest.raises(UnsupportedInput, match="kind"):
        constraints.Spec("poem", "")
    with pytest.raises(UnsupportedInput, match="Separators"):
        constraints.json_schema({}, separators=("; ", ": "))
    with pytest.raises(UnsupportedInput):
        constraints.regex(3)
    with pytest.raises(UnsupportedInput):
        constraints.grammar(" ")


def test_a_broken_lark_grammar_is_a_named_error():
    with pytest.raises(UnsupportedSchema):
        constraints.compile(constraints.grammar("start: missing"), tiny_tokenizer())
