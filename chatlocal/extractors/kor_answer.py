"""Reading a model's answer into data, validated data and errors."""

from __future__ import annotations

import re
from typing import Any, TypedDict

from chatlocal.extractors.encoders.encoder import ParseError, ReadInPart
from chatlocal.extractors.kor_prompt import ExtractionPromptValue
from chatlocal.extractors.node_examples import nothing_taught
from chatlocal.extractors.nodes import Object
from chatlocal.extractors.typed_values import typed


class KorExtraction(TypedDict):
    """What an extraction gives; the keys are Kor's."""

    data: dict[str, Any]
    """{id: data} in the types of the schema; {} where nothing could be read, and then there is an error."""
    raw: str
    """The whole answer as the model wrote it."""
    errors: list[Exception]
    """What could not be read, does not fit, or does not validate."""
    validated_data: Any
    """What the validator made of the data; {} without a validator, and where there was nothing to validate."""


def read_answer(
    raw: str, node: Object, encoder: Any, validator: Any = None, prompt: ExtractionPromptValue | None = None
) -> KorExtraction:
    """`prompt` is what the model was asked: an answer that repeats it begins behind it. Raises nothing."""
    errors: list[Exception] = []
    answer = raw if prompt is None else behind_prompt(raw, prompt)
    try:
        decoded = encoder.decode(answer)
    except ReadInPart as part:
        decoded = part.value
        errors += [ParseError(problem, raw) for problem in part.problems]
    except Exception as error:  # an encoder of the user's, or of Kor, may raise anything
        problem = error if isinstance(error, ParseError) else ParseError(f"{type(error).__name__}: {error}", raw)
        problem.__cause__ = None if problem is error else error
        return KorExtraction(data={}, raw=raw, errors=[problem], validated_data={})
    if decoded == {} and isinstance(decoded, dict) and nothing_taught(node):
        decoded = {node.id: [] if node.many else {}}
    if not isinstance(decoded, dict) or node.id not in decoded:
        wanted = f"The answer should be an object with {node.id!r} in it, and is {decoded!r:.200}."
        problem = ParseError(f"{wanted} More examples may help the model.", raw)
        return KorExtraction(data={}, raw=raw, errors=[*errors, problem], validated_data={})
    if decoded[node.id] is None or (decoded[node.id] == {} and not nothing_taught(node)):
        errors.append(ParseError(f"The answer has nothing for {node.id!r}. More examples may help the model.", raw))
    rows = bool(getattr(encoder, "always_rows", False)) and not node.many
    value, problems = _typed(node, decoded[node.id], rows)
    data = {**decoded, node.id: value}
    if validator is None:
        errors += [ParseError(problem, raw) for problem in problems]
        return KorExtraction(data=data, raw=raw, errors=errors, validated_data={})
    validated, faults = _validated(validator, value[0] if rows and len(value) == 1 else value, raw)
    # What the validator takes is right, whatever the schema says of it: a class may read more than one type.
    return KorExtraction(data=data, raw=raw, errors=[*errors, *faults], validated_data=validated)


def _typed(node: Object, value: Any, rows: bool) -> tuple[Any, list[str]]:
    if not rows or not isinstance(value, list):
        return typed(node, value)
    many, problems = typed(node.model_copy(update={"many": True}), value)
    if len(value) > 1:
        problems.append(f"{node.id} should be one record, and the table has {len(value)} rows.")
    return many, problems


def _validated(validator: Any, value: Any, raw: str) -> tuple[Any, list[Exception]]:
    try:
        validated, faults = validator.clean_data(value)
    except Exception as error:  # a validator of the user's may raise anything
        return None, [error]
    for fault in faults:
        if isinstance(fault, ParseError):
            fault.raw = raw  # which a validator does not know
    return validated, list(faults)


_THINKING = re.compile(r"\s*<think>.*?</think>|[^{<|]*</think>\s*\n", re.DOTALL)
_NEXT_TURN = re.compile(r"\n\s*Input:.*?\n\s*Output:", re.DOTALL)


def behind_prompt(raw: str, prompt: ExtractionPromptValue) -> str:
    """The answer without the prompt that a model may repeat in front of it, and without turns that it makes up.

    A prompt is found piece by piece, whatever a chat template puts between the pieces; one whose beginning was cut off
    by its last lines.
    """
    place = _end_of_pieces(raw, prompt)
    if place is None:
        last = f"Input: {prompt.text}\nOutput:"
        found = raw.rfind(last)
        place = 0 if found < 0 else found + len(last)
    answer = raw[place:]
    thinking = _THINKING.match(answer)
    answer = answer[thinking.end() :] if thinking else answer
    made_up = _NEXT_TURN.search(answer)
    return answer[: made_up.start()] if made_up and answer[: made_up.start()].strip() else answer


def _end_of_pieces(raw: str, prompt: ExtractionPromptValue) -> int | None:
    place = 0
    turns = [piece for turn in prompt.examples for piece in turn]
    for piece in (prompt.instructions, *turns, prompt.text):
        written = piece.strip()
        found = raw.find(written, place)
        if found < 0:
            return None
        place = found + len(written)
    closing = re.compile(r"\s*(?:\"\"\")?\s*Output:").match(raw, place)
    return place if closing is None else closing.end()
