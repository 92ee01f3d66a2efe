"""Drafts change how fast an answer comes and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Done, Request, TokenEvent, Tokens
from chatlocal.engine.runtime.drafting import Drafter
from chatlocal.engine.runtime.prompt_lookup import PromptLookup
from chatlocal.engine.runtime.sequence import Sequence
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.fixed_costs import FixedCosts, by_id, fix_costs, free
from tests.engine.runtime.running import generated, ids_of, prompt, read_in_pieces, tiny_backend
from tests.tiny import tiny_model, tiny_tokenizer

MODEL = tiny_model()
# Its ids repeat soon: with the usual spread of weights, tied embeddings make a random model go round.
ROUND = tiny_model(initializer_range=0.08)
RECORD = constraints.json_schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "kind": {"enum": ["cat", "dog", "horse"]},
            "parts": {"type": "array", "maxItems": 3, "items": {"enum": ["head", "tail"]}},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "kind", "parts", "age"],
    }
)
TEXT = tuple(tiny_tokenizer().encode("Harry was a chubby brown beagle, 42 years old. The dog is called Harry."))


@contextmanager
def drafting(monkeypatch: pytest.MonkeyPatch, model: Any, of: Callable[[int], float] = free) -> Iterator[TorchBackend]:
    """A backend that drafts by these costs."""
    with monkeypatch.context() as patched:
        fix_costs(patched, of)
        with tiny_backend(model) as backend:
            yield backend


def asked(number: int, new: int = 40, spec: Any = None, logprobs: int | None = None, **sampling: Any) -> Request:
    """A request whose prompt repeats itself, so that there is something to look up."""
    ids = prompt(6 + number % 5, number)
    given = Sampling(max_tokens=200 if spec else new, seed=100 + number, **sampling)
    return Request((*ids, *TEXT, *ids, *ids[:3]), given, frozenset({2}), spec, logprobs)


def read(events: Iterator[TokenEvent]) -> tuple[list[TokenEvent], list[int]]:
    """All events, and the ids of the answer as they stand in the end."""
    events_read, ids = [], []
    for event in events:
        events_read.append(event)
        if isinstance(event, Tokens):
            del ids[len(ids) - event.replaces :]
            ids += event.ids
    return events_read, ids


SAMPLED = {"temperature": 0.2}
CUT = {"temperature": 0.8, "top_k": 20, "top_p": 0.6, "min_p": 0.01}
PENALTIES = {"temperature": 0.4, "repetition_penalty": 0.8, "presence_penalty": -0.2, "frequency_penalty": 0.05}


@pytest.mark.parametrize("sampling", [{}, SAMPLED, CUT, PENALTIES], ids=["greedy", "sampled", "cut", "penalties"])
@pytest.mark.parametrize("spec", [None, RECORD], ids=["free", "in a form"])
def test_answers_are_those_without_drafts(monkeypatch: pytest.MonkeyPatch, sampling: Any, spec: Any) -> None:
    requests = [asked(number, spec=spec, **sampling) for number in range(6)]
    with tiny_backend(ROUND, drafting=False) as plain:
        expected = [read(plain.submit(one))[1] for one in requests]
        ends = [read(plain.submit(one))[0][-1] for one in requests]
    with drafting(monkeypatch, ROUND) as backend:
        assert [read(backend.submit(one))[1] for one in requests] == expected
        streams = [backend.submit(one) for one in requests]
        together = [read(stream) for stream in streams]
        stats = backend.stats()
    assert [ids for _, ids in together] == expected
    assert [events[-1] for events, _ in together] == ends
    assert 0 < stats["accepted"] < stats["drafted"]


def test_a_text_that_goes_round_takes_few_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(prompt(8), Sampling(max_tokens=120))
    with tiny_backend(ROUND, drafting=False) as plain:
        expected = ids_of(plain.submit(request))
        assert plain.stats()["forwards"] >= len(expected)
    with drafting(monkeypatch, ROUND) as backend:
        assert ids_of(backend.submit(request)) == expected
        assert backend.stats()["forwards"] < len(expected) / 3


@pytest.mark.parametrize(
    "make", [lambda: architecture("mistral", sliding_window=64), lambda: architecture("mamba")], ids=["window", "state"]
)
def test_a_cache_that_takes_nothing_back_has_no_drafts(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    with drafting(monkeypatch, make()) as backend:
        ids = ids_of(backend.submit(asked(1)))
        assert len(ids) == 40
        assert backend.stats()["drafted"] == 0
        assert backend.describe()["drafts from prompt and answer"] == "never"


def test_every_id_is_reported_from_its_own_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [asked(number, spec=spec, logprobs=3) for number in range(3) for spec in (None, RECORD)]
    with tiny_backend(ROUND, drafting=False) as plain:
        expected = [reports(plain.submit(one)) for one in requests]
    with drafting(monkeypatch, ROUND) as backend:
        for request, wanted in zip(requests, expected, strict=True):
            got = reports(backend.submit(request))
            assert [one[0] for one in got] == [one[0] for one in wanted]
            assert [one[1] for one in got] == pytest.approx([one[1] for one in wanted], abs=1e-4)
        assert backend.stats()["accepted"] > 0


def reports(events: Iterator[TokenEvent]) -> list[tuple[int, float]]:
    return [(one.id, one.logprob) for event in events if isinstance(event, Tokens) for one in event.logprobs]


def test_the_choices_under_a_form_are_those_without_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [asked(number, spec=RECORD, temperature=1.0) for number in range(4)]
    with tiny_backend(MODEL, drafting=False) as plain:
        expected = [choices(plain.submit(one)) for one in requests]
    with drafting(monkeypatch, MODEL) as backend:
        for request, wanted in zip(requests, expected, strict=True):
            assert choices(backend.submit(request)) == pytest.approx(wanted, abs=1e-3)


def choices(events: Iterator[TokenEvent]) -> list[float]:
    standing: list[float] = []
    for event in events:
        if isinstance(event, Tokens):
            del standing[len(standing) - event.replaces :]
            standing += event.choices
    return standing


def test_an_answer_ends_at_its_limit_in_the_middle_of_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    with tiny_backend(ROUND, drafting=False) as plain:
        longest = ids_of(plain.submit(asked(0, new=60)))
    with drafting(monkeypatch, ROUND) as backend:
        for new in range(1, 60, 7):
            events, ids = read(backend.submit(asked(0, new=new)))
            assert ids == longest[:new]
            assert events[-1] == Done("length")


def test_an_answer_ends_where_a_stop_id_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked(0, new=60)
    with tiny_backend(ROUND, drafting=False) as plain:
        ids = ids_of(plain.submit(request))
    stop = ids[25]
    ended = Request(request.prompt_ids, request.sampling, frozenset({stop}))
    with drafting(monkeypatch, ROUND) as backend:
        events, got = read(backend.submit(ended))
    assert got == ids[: ids.index(stop)]
    assert events[-1] == Done("stop", stop)


def drafted(ids: list[int], of: Callable[[int], float] = free, **request: Any) -> tuple[Drafter, Sequence]:
    """A sequence behind these ids, with what is drafted for it."""
    drafter = Drafter(FixedCosts(of), padded=True)
    sequence = Sequence(Request(tuple(ids), **request))
    sequence.cached = len(ids) - 1
    drafter.propose([sequence])
    return drafter, sequence


def test_what_followed_before_is_drafted() -> None:
    _, sequence = drafted([7, 8, 9, 10, 11, 7, 8, 9])
    assert sequence.draft[:3] == [10, 11, 7]


def test_nothing_is_drafted_beyond_a_stop_id() -> None:
    _, sequence = drafted([7, 8, 9, 10, 2, 7, 8, 9], stop_ids=frozenset({2}))
    assert sequence.draft == [10]


def test_nothing_is_drafted_beyond_the_limit() -> None:
    _, sequence = drafted([7, 8, 9, 10, 11, 7, 8, 9], sampling=Sampling(max_tokens=3))
    assert sequence.draft == [10, 11]


def test_no_draft_pays_where_every_id_costs_the_same() -> None:
    assert drafted([7, 8, 9, 10, 11, 7, 8, 9], by_id)[1].draft == []


def grow(drafter: Drafter, sequence: Sequence, ids: list[int]) -> None:
    """These ids come, and the next ones are drafted."""
    sequence.expect()
    for id in ids:
        sequence.take(id, 0.0, None)
    sequence.settle()
    drafter.learn(sequence)
    drafter.propose([sequence])


def dear(ids: int) -> float:
    """Drafts pay only where half of them are right."""
    return 1.0 + 0.45 * (ids - 1)


def test_drafts_that_are_wrong_stop_and_begin_again_when_they_would_be_right() -> None:
    drafter, sequence = drafted([7, 8, 9, 10] * 3 + [7, 8], dear)
    assert sequence.draft
    # 7, 8 is followed by something else each time: what is looked up is wrong.
    for other in range(20, 40):
        grow(drafter, sequence, [other, 7, 8])
    assert not sequence.draft
    # And now it repeats: what was not drafted any more would have been right.
    drafts = []
    for _ in range(120):
        grow(drafter, sequence, [9, 10, 7, 8])
        drafts.append(sequence.draft[:2])
    assert drafts[0] == []
    assert drafts[-1] == [9, 10]


def test_where_nothing_pays_little_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    find = PromptLookup.find
    monkeypatch.setattr(PromptLookup, "find", lambda *arguments: looked.append(1) or find(*arguments))
    drafter, sequence = drafted([7, 8, 9, 10] * 3 + [7, 8], by_id)
    for _ in range(16 + 80):
        grow(drafter, sequence, [9])
    assert len(looked) < 16 + 80 / 4


@pytest.mark.parametrize("padded", [True, False])
def test_the_draft_of_one_must_pay_for_all_where_rows_are_padded(padded: bool) -> None:
    drafter = Drafter(FixedCosts(lambda ids: 1.0 + 0.01 * ids), padded=padded)
    repeating = Sequence(Request((7, 8, 9, 10, 11, 7, 8, 9)))
    others = [Sequence(Request(tuple(range(100 + 20 * one, 110 + 20 * one)))) for one in range(15)]
    for sequence in (repeating, *others):
        sequence.cached = len(sequence.ids) - 1
    drafter.propose([repeating, *others])
    assert bool(repeating.draft) is not padded
    assert not any(other.draft for other in others)


def test_drafts_leave_room_for_a_prompt_that_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_pieces(monkeypatch, 512, 24)
    seen: list[list[tuple[bool, int]]] = []
    with drafting(monkeypatch, ROUND) as backend:
        runner = backend._scheduler._runner
        forward = runner.forward

        def watched(work: list[tuple[Sequence, int]]) -> Any:
            seen.append([(len(one.request.prompt_ids) == 900, count) for one, count in work])
            return forward(work)

        monkeypatch.setattr(runner, "forward", watched)
        streams = [backend.submit(asked(number, new=1500)) for number in range(4)]
        for stream in streams:
            for _ in range(20):
                next(stream)
        newcomer = ids_of(backend.submit(Request(tuple(prompt(900, 9)), Sampling(max_tokens=1))))
        for stream in streams:
            stream.close()
    assert newcomer == generated(ROUND, prompt(900, 9), 1)
    # Prompts and streams have a forward each in a step of this model, the prompts first.
    first = next(place for place, work in enumerate(seen) if work[0][0])
    before = [sum(count - 1 for _, count in work) for work in seen[:first]]
    beside = [
        (work[0][1], sum(count - 1 for _, count in streams))
        for work, streams in zip(seen[first:], seen[first + 1 :], strict=False)
        if work[0][0] and not streams[0][0]
    ]
    assert len(beside) > 900 / 24
    assert max(before) > 12
    assert all(drafted <= 12 and read + drafted <= 24 for read, drafted in beside)
    assert sum(drafted for _, drafted in beside) > 0
