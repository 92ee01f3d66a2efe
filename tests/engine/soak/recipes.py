"""What the soak asks: requests of every kind, the same ones for the same seed.

Each carries its own number where an answer can show it (in a schema, a pattern, the name of a tool), so that an answer
which reached the wrong caller is seen as such.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jsonschema

from chatlocal.engine import constraints
from chatlocal.engine.constraints import Spec
from chatlocal.engine.errors import BudgetTooSmall, ContextOverflow, UnsupportedInput, UnsupportedSchema
from chatlocal.engine.messages import Sampling
from chatlocal.engine.runtime.backend import Request

# More new ids than a request is let in with room for, so that answers can outgrow the cache.
_LONG = 110
_ENOUGH = 90

_SYSTEMS = ("You are terse.", "You are a careful assistant. " * 6, "Answer with the name of the dog. " * 14)
_WORDS = ("dog", "brown", "chicken", "小狗", "what", "is", "the", "answer", "é", "42", "🦥", "search")

Check = Callable[[str], bool]


@dataclass(frozen=True)
class Recipe:
    """One request. Exactly one of `chat` (arguments of Engine.stream) and `ids` is there.

    `refused` is the error that it must be refused with, `shows` whether a text can be this one's answer.
    """

    number: int
    kind: str
    chat: dict[str, Any] | None = None
    ids: Request | None = None
    refused: type[Exception] | None = None
    shows: Check = field(default=lambda text: True)

    @property
    def sampling(self) -> Sampling:
        sampling = self.ids.sampling if self.ids is not None else (self.chat or {}).get("sampling")
        return sampling or Sampling()


@dataclass(frozen=True)
class Scale:
    """What the model can take: `vocabulary` ids from `first_id` on are ordinary ones, prompts have up to `prompt`."""

    context: int
    vocabulary: int
    cache_tokens: int
    stop_ids: frozenset[int]
    first_id: int = 3
    prompt: int = 600
    answer: int = 60


def recipes(count: int, scale: Scale, seed: int = 0) -> list[Recipe]:
    """So many requests, of all kinds in turn."""
    made: list[Recipe] = []
    for number in range(count):
        chosen = random.Random(f"{seed} {number}")
        kind = _KINDS[number % len(_KINDS)]
        made.append(kind(number, chosen, scale))
    return made


def _sampling(chosen: random.Random, scale: Scale, **settings: Any) -> Sampling:
    """Greedy or sampled, sometimes with penalties."""
    limit = settings.pop("max_tokens", chosen.randint(1, scale.answer))
    sampling = Sampling(max_tokens=limit, temperature=0.0, **settings)
    if chosen.random() < 0.6:
        cut = chosen.choice([{"top_k": 12}, {"top_p": 0.9, "top_k": 20}, {"min_p": 0.02}, {"top_k": 4}])
        sampling = replace(sampling, temperature=chosen.choice([0.5, 1.0, 1.3]), seed=chosen.randrange(2**32), **cut)
    if chosen.random() < 0.3:
        penalties = [{"repetition_penalty": 1.2}, {"frequency_penalty": 0.3}, {"presence_penalty": 0.5}]
        sampling = replace(sampling, **chosen.choice(penalties))
    return sampling


def _ids(chosen: random.Random, scale: Scale, length: int | None = None) -> tuple[int, ...]:
    """A prompt that begins like one of four others, and sometimes is one of them."""
    length = length or chosen.choice(
        [
            1,
            2,
            chosen.randint(3, 60),
            chosen.randint(3, scale.prompt // 3),
            chosen.randint(scale.prompt // 3, scale.prompt),
        ]
    )
    common = random.Random(chosen.randrange(4))
    family = [common.randrange(scale.first_id, scale.vocabulary) for _ in range(scale.prompt)]
    shared = chosen.choice([0, length // 2, length - 1, length])
    own = [chosen.randrange(scale.first_id, scale.vocabulary) for _ in range(length - shared)]
    return (*family[:shared], *own)


def _request(number: int, kind: str, chosen: random.Random, scale: Scale, **options: Any) -> Recipe:
    sampling = options.pop("sampling", None) or _sampling(chosen, scale)
    shows = options.pop("shows", lambda text: True)
    prompt_ids = options.pop("prompt_ids", None) or _ids(chosen, scale)
    request = Request(prompt_ids, sampling, scale.stop_ids, priority=chosen.choice([0, 0, 0, 1, 5]), **options)
    return Recipe(number, kind, ids=request, shows=shows)


def _chat(number: int, kind: str, chosen: random.Random, scale: Scale, **options: Any) -> Recipe:
    shows = options.pop("shows", lambda text: True)
    refused = options.pop("refused", None)
    words = " ".join(chosen.choice(_WORDS) for _ in range(chosen.randint(0, 30)))
    messages = [{"role": "user", "content": f"{number} {words}"}]
    if chosen.random() < 0.6:
        messages.insert(0, {"role": "system", "content": chosen.choice(_SYSTEMS)})
    chat = {"messages": messages, "sampling": _sampling(chosen, scale), **options}
    return Recipe(number, kind, chat=chat, refused=refused, shows=shows)


def _free_ids(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    return _request(number, "free", chosen, scale)


def _long_ids(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    """An answer that ends at its limit alone, and outgrows the room it was let in with; several run together."""
    sampling = _sampling(chosen, scale, max_tokens=chosen.randint(_LONG, 160))
    request = Request(_ids(chosen, scale, scale.prompt // 20), sampling, priority=7)
    return Recipe(number, "long", ids=request)


def _reported_ids(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    return _request(number, "reported", chosen, scale, logprobs=number % 4)


def _regex_ids(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    spec, shows = _marked_regex(number)
    sampling = _sampling(chosen, scale, max_tokens=_ENOUGH)
    return _request(number, "regex of ids", chosen, scale, sampling=sampling, constraint_spec=spec, shows=shows)


def _free_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    return _chat(number, "chat", chosen, scale)


def _stopped_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    stops = tuple(chosen.sample(["a", "e", " ", "do", "狗", "not there at all"], 2))
    sampling = _sampling(chosen, scale, max_tokens=scale.answer, stop=stops)
    shows: Check = lambda text: not any(stop in text for stop in stops)  # noqa: E731
    return _chat(number, "stopped", chosen, scale, sampling=sampling, shows=shows)


def _reported_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    return _chat(number, "reported chat", chosen, scale, sampling=_sampling(chosen, scale, logprobs=number % 3))


def _spec_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    kinds: list[Callable[[int], tuple[Spec, Check]]] = [_marked_regex, _marked_choice, _marked_schema]
    spec, shows = kinds[number // len(_KINDS) % 3](number)
    sampling = _sampling(chosen, scale, max_tokens=_ENOUGH)
    return _chat(number, f"form {spec.kind}", chosen, scale, spec=spec, shows=shows, sampling=sampling)


def _schema_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    spec, shows = _marked_schema(number)
    sampling = _sampling(chosen, scale, max_tokens=_LONG)
    return _chat(number, "schema", chosen, scale, spec=spec, shows=shows, sampling=sampling)


def _tools(number: int) -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {"place": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "maximum": 9}},
        "required": ["place"],
    }
    described = [(f"weather_{number}", "the weather of a place"), (f"search_{number}", "look for something")]
    return [{"name": name, "description": text, "parameters": parameters} for name, text in described]


def _demanded_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    choice = chosen.choice(["required", f"weather_{number}"])
    sampling = _sampling(chosen, scale, max_tokens=_LONG)
    options: dict[str, Any] = {"tools": _tools(number), "tool_choice": choice, "sampling": sampling}
    return _chat(number, "demanded", chosen, scale, shows=lambda text: text == "", **options)


def _auto_chat(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    sampling = _sampling(chosen, scale, max_tokens=_LONG)
    return _chat(number, "auto", chosen, scale, tools=_tools(number), sampling=sampling)


def _refused(number: int, chosen: random.Random, scale: Scale) -> Recipe:
    """One that must not be let in, each time for another reason."""
    reason = number // len(_KINDS) % 7
    user = [{"role": "user", "content": "hello"}]
    requests: list[tuple[int, ...]] = [
        (),
        (*_ids(chosen, scale), 10**6),
        tuple(chosen.randrange(scale.first_id, scale.vocabulary) for _ in range(scale.cache_tokens + 1)),
    ]
    if reason < len(requests):
        request = Request(requests[reason], _sampling(chosen, scale), scale.stop_ids)
        return Recipe(number, "refused ids", ids=request, refused=UnsupportedInput)
    chats: list[tuple[type[Exception], dict[str, Any]]] = [
        (ContextOverflow, {"messages": [{"role": "user", "content": "小狗 " * scale.context}]}),
        (UnsupportedSchema, {"messages": user, "spec": constraints.json_schema({"type": "array", "contains": {}})}),
        (UnsupportedSchema, {"messages": user, "spec": constraints.regex(f"({number}")}),
        (
            BudgetTooSmall,
            {"messages": user, "spec": constraints.regex("[a-f]{80}"), "sampling": Sampling(max_tokens=3)},
        ),
    ]
    error, chat = chats[reason - len(requests)]
    return Recipe(
        number, f"refused {error.__name__}", chat={"sampling": Sampling(max_tokens=20), **chat}, refused=error
    )


_KINDS: tuple[Callable[[int, random.Random, Scale], Recipe], ...] = (
    _free_ids,
    _free_chat,
    _long_ids,
    _spec_chat,
    _reported_ids,
    _stopped_chat,
    _demanded_chat,
    _regex_ids,
    _long_ids,
    _auto_chat,
    _schema_chat,
    _refused,
    _reported_chat,
)


def _marked_regex(number: int) -> tuple[Spec, Check]:
    pattern = f"{number}:[a-f]{{3,20}}(-[0-9]{{2}})?"
    return constraints.regex(pattern), lambda text: re.fullmatch(pattern, text) is not None


def _marked_choice(number: int) -> tuple[Spec, Check]:
    values = [f"number {number}", f"number {number}, again", f"{number}: 小狗"]
    return constraints.choice(values), lambda text: text in values


def _marked_schema(number: int) -> tuple[Spec, Check]:
    mark = {"const": f"m{number}"}
    word = {"type": "string", "maxLength": 6}
    bodies: list[dict[str, Any]] = [
        {"age": {"type": "integer", "minimum": 0, "maximum": 300}, "alive": {"type": "boolean"}},
        {"tags": {"type": "array", "items": {"enum": ["brown", "black", "小"]}, "maxItems": 3}},
        {"name": {"anyOf": [word, {"type": "null"}]}, "kind": {"enum": [1, "one", None]}},
        {"code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{1,3}$"}},
        {"next": {"$ref": "#/$defs/node"}},
        {"size": {"type": "number", "minimum": -1, "maximum": 1, "multipleOf": 0.5}},
    ]
    body = bodies[number % len(bodies)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"mark": mark, **body},
        "required": ["mark", *body],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "integer", "maximum": 9, "minimum": 0}, "next": {"$ref": "#/$defs/node"}},
                "required": ["v"],
            }
        },
    }
    validator = jsonschema.Draft202012Validator(schema)
    return constraints.json_schema(schema), lambda text: validator.is_valid(json.loads(text))
