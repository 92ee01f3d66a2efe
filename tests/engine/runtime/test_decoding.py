"""Forced text in the decode loop: fewer forwards, ids that are written anew, and drafts that change nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints.forced_text import advance_forced
from chatlocal.engine.detokenize import Detokenizer
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime import scheduler, torch_backend
from chatlocal.engine.runtime.backend import Done, Request, TokenEvent, Tokens
from chatlocal.engine.runtime.single_runners import PlainRunner
from chatlocal.engine.runtime.torch_backend import TorchBackend
from tests.engine.runtime.architectures import architecture
from tests.engine.runtime.running import ids_of, prompt, tiny_backend
from tests.tiny import tiny_model, tiny_tokenizer

MODEL = tiny_model()
END = frozenset({2})
RECORD = constraints.json_schema(
    {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8},
            "kind": {"enum": ["cat", "dog", "horse"]},
            "parts": {"type": "array", "maxItems": 2, "items": {"enum": ["head", "tail"]}},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
        },
        "required": ["name", "kind", "parts", "age"],
    }
)


def asked(number: int = 0, spec: Any = RECORD, **sampling: Any) -> Request:
    """A request with its own prompt and random numbers."""
    return Request(prompt(9 + number, number), Sampling(max_tokens=200, seed=number, **sampling), END, spec)


def standing(events: Iterable[TokenEvent]) -> list[int]:
    """The ids of an answer, with those that were replaced replaced."""
    ids: list[int] = []
    for event in events:
        if isinstance(event, Tokens):
            assert event.replaces <= len(ids)
            del ids[len(ids) - event.replaces :]
            ids += event.ids
    return ids


def text(ids: list[int]) -> str:
    return str(tiny_tokenizer().decode(ids))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_are_whole_and_take_fewer_forwards_than_ids(temperature: float) -> None:
    with tiny_backend(MODEL) as backend:
        for seed in range(8):
            before = backend.stats()
            events = list(backend.submit(asked(seed, temperature=temperature)))
            stats = {name: value - before[name] for name, value in backend.stats().items()}
            record = json.loads(text(standing(events)))
            assert list(record) == ["name", "kind", "parts", "age"]
            assert isinstance(events[-1], Done)
            assert events[-1].reason == "stop"
            assert stats["tokens_out"] == len(standing(events))
            assert stats["forced"] > 0
            assert stats["forwards"] < stats["tokens_out"]


def test_what_is_streamed_is_the_text_of_the_ids_that_stand() -> None:
    with tiny_backend(MODEL) as backend:
        for seed in range(8):
            events = list(backend.submit(asked(seed, temperature=1.0)))
            detokenizer, streamed = Detokenizer(tiny_tokenizer()), ""
            for event in events:
                if isinstance(event, Tokens):
                    if event.replaces:
                        detokenizer.rewind(event.replaces)
                    streamed += detokenizer.feed(event.ids)
            assert streamed + detokenizer.flush() == text(standing(events))


def test_an_answer_without_any_choice_takes_no_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_LONG", 60.0)
    spec = constraints.json_schema({"type": "object", "properties": {"a": {"const": "x"}}, "required": ["a"]})
    with tiny_backend(MODEL) as backend:
        events = list(backend.submit(asked(spec=spec)))
        assert text(standing(events)) == '{"a": "x"}'
        assert events[-1] == Done("stop")
        assert backend.stats()["forwards"] == 0


@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0}], ids=["greedy", "sampled"])
@pytest.mark.parametrize(
    "penalties",
    [{}, {"repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.2}],
    ids=["", "penalties"],
)
def test_a_batch_gives_what_each_gives_alone(sampling: dict[str, Any], penalties: dict[str, Any]) -> None:
    requests = [asked(seed, **sampling, **penalties) for seed in range(6)]
    with tiny_backend(MODEL) as backend:
        alone = [standing(backend.submit(one)) for one in requests]
        together = [standing(stream) for stream in [backend.submit(one) for one in requests]]
    assert together == alone


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda: tiny_model(), id="shared rows"),
        pytest.param(lambda: architecture("mistral", sliding_window=8), id="sliding window"),
        pytest.param(lambda: architecture("mamba"), id="state"),
    ],
)
def test_drafts_and_written_ids_are_read_as_if_they_had_been_chosen(model: Any) -> None:
    """The same ids as from a loop that reads the whole text anew for every choice."""
    model = model()
    with tiny_backend(model) as backend:
        for number in range(3):
            request = asked(number, temperature=0.0)
            ids = standing(backend.submit(request))
            assert json.loads(text(ids))
            assert ids == chosen_one_by_one(backend, request)
        assert backend.stats()["forced"] > 0 or isinstance(backend._scheduler._runner, PlainRunner)


def chosen_one_by_one(backend: TorchBackend, request: Request) -> list[int]:
    """Greedy: forced text where there is some, else the likeliest id of those that are allowed."""
    runner = backend._scheduler._runner
    state = constraints.compile(RECORD, tiny_tokenizer(), vocab_size=backend._width, end_ids=sorted(END)).start()
    ids: list[int] = []
    while not state.done:
        if runner.several:
            forced = advance_forced(state, None if runner.takes_back else 1)
            if forced is not None:
                ids[len(ids) - len(forced.replaced) :] = forced.ids
        if state.done:
            break
        allowed = [id for id in state.mask().nonzero().flatten().tolist() if id not in END]
        scores = backend.score((*request.prompt_ids, *ids), [(id,) for id in allowed]) if len(allowed) > 1 else [0.0]
        ids.append(allowed[scores.index(max(scores))])
        state.advance(ids[-1])
    return ids


def test_the_choices_of_replaced_ids_are_kept() -> None:
    """The probabilities of all ids that stand multiply to those of the choices that were made."""
    with tiny_backend(MODEL) as backend:
        for seed in range(6):
            standing_choices: list[float] = []
            for event in backend.submit(asked(seed, temperature=1.0)):
                if isinstance(event, Tokens):
                    assert len(event.choices) == len(event.ids)
                    replaced = standing_choices[len(standing_choices) - event.replaces :]
                    del standing_choices[len(standing_choices) - event.replaces :]
                    assert sum(event.choices) <= sum(replaced) + 1e-6
                    standing_choices += event.choices
            assert all(choice <= 0 for choice in standing_choices)
            assert sum(standing_choices) < -1


def test_forced_text_can_be_turned_off() -> None:
    with tiny_backend(MODEL, forced_text=False, drafting=False) as backend:
        ids = ids_of(backend.submit(asked()))
        stats = backend.stats()
    assert json.loads(text(ids))
    assert stats["forced"] == stats["drafted"] == 0
    assert stats["forwards"] >= len(ids)


def test_with_logprobs_every_id_is_reported() -> None:
    request = Request(prompt(9), Sampling(max_tokens=200), END, RECORD, logprobs=2)
    with tiny_backend(MODEL) as backend:
        events = list(backend.submit(request))
    for event in events[:-1]:
        assert isinstance(event, Tokens)
        assert [report.id for report in event.logprobs] == list(event.ids)
    assert json.loads(text(standing(events)))


def test_a_prompt_of_any_length_has_its_logits_behind_the_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the pieces of a prompt end, the ids are those of a prompt that is read at once."""
    spec = constraints.json_schema(
        {"type": "object", "properties": {"name": {"type": "string", "maxLength": 6}}, "required": ["name"]}
    )
    requests = [Request(prompt(length), Sampling(max_tokens=60, temperature=0.0), END, spec) for length in range(9, 30)]
    with tiny_backend(MODEL) as backend:
        whole = [standing(backend.submit(one)) for one in requests]
        assert backend.stats()["drafted"] > 0
        for piece in (8, 5, 2):
            monkeypatch.setattr(scheduler, "_PREFILL_IDLE", (piece, 2 * piece))
            assert [standing(backend.submit(one)) for one in requests] == whole
