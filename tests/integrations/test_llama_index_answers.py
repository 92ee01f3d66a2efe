"""Events as LlamaIndex responses: what the scripted engine cannot show, the model's thinking."""

from __future__ import annotations

from llama_index.core.base.llms.types import TextBlock, ThinkingBlock

from chatlocal.engine.events import Finish, Reasoning, Text, Usage
from chatlocal.integrations.llama_index_answers import AnswerSoFar

EVENTS = (Reasoning("let "), Reasoning("me"), Text("It is "), Text("42."), Finish("stop", Usage(3, 9, reasoning=5)))


def test_thinking_has_a_block_and_deltas_of_its_own() -> None:
    answer = AnswerSoFar("tiny")
    responses = []
    for event in EVENTS:
        answer.add(event)
        responses.append(answer.chat(streaming=True))
    assert [response.delta for response in responses] == ["", "", "It is ", "42.", ""]
    assert [response.additional_kwargs.get("thinking_delta") for response in responses] == [
        "let ",
        "me",
        None,
        None,
        None,
    ]
    assert [response.message.content for response in responses] == ["", "", "It is ", "It is 42.", "It is 42."]
    assert responses[0].message.blocks == [ThinkingBlock(content="let "), TextBlock(text="")]
    assert responses[-1].message.blocks == [ThinkingBlock(content="let me", num_tokens=5), TextBlock(text="It is 42.")]


def test_a_completion_keeps_thinking_out_of_its_text() -> None:
    answer = AnswerSoFar("tiny")
    deltas = []
    for event in EVENTS:
        answer.add(event)
        deltas.append(answer.completion(streaming=True).additional_kwargs.get("thinking_delta"))
    assert answer.completion().text == "It is 42."
    assert deltas == ["let ", "me", None, None, None]


def test_a_whole_response_has_no_deltas() -> None:
    answer = AnswerSoFar("tiny")
    for event in EVENTS:
        answer.add(event)
    usage = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}
    for response in (answer.chat(), answer.completion()):
        assert response.delta is None
        assert response.additional_kwargs == usage
        assert response.raw == {"usage": usage, "finish_reason": "stop", "model": "tiny"}
