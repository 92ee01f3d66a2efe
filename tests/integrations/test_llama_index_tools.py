"""Tool calling over a scripted backend: what the model is told, and what of its answer becomes a call."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool

from chatlocal.engine.errors import ContextOverflow, OutputInvalid, UnsupportedInput
from chatlocal.integrations.llama_index import LocalLLM
from tests.integrations.llama_index_calls import (
    CHAT,
    HELLO,
    TOOL_CHAT,
    ask,
    final_answer,
    prompts,
    recorded_events,
    tool_call,
    tool_llm,
    until,
)
from tests.scripted import backend_of

ARGUMENTS = {"a": 3, "b": 41}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def mirror(text: str) -> str:
    """Turn a text round."""
    return text[::-1]


ADD = FunctionTool.from_defaults(add)
MIRROR = FunctionTool.from_defaults(mirror)
TOOLS = [ADD, MIRROR]
CALL = tool_call("add", ARGUMENTS)
PROSE = final_answer("It is 44.")


def calls_of(response: ChatResponse) -> list[tuple[str, Any]]:
    return [
        (block.tool_name, block.tool_kwargs) for block in response.message.blocks if isinstance(block, ToolCallBlock)
    ]


async def whole(llm: LocalLLM, endpoint: str, **kwargs: Any) -> ChatResponse:
    """The last response of an endpoint that takes tools."""
    last: ChatResponse = (await ask(llm, endpoint, TOOLS, user_msg="What is 3 + 41?", **kwargs))[-1]
    return last


@pytest.mark.parametrize("endpoint", TOOL_CHAT)
async def test_a_call_comes_as_a_block_and_in_openai_shape(endpoint: str) -> None:
    response = await whole(tool_llm(CALL), endpoint)
    message = response.message
    thought, call = message.blocks
    assert isinstance(thought, ThinkingBlock)
    assert (thought.content or "").strip() == "I need a tool."
    assert isinstance(call, ToolCallBlock)
    assert (call.tool_name, call.tool_kwargs) == ("add", ARGUMENTS)
    assert call.tool_call_id
    (plain,) = message.additional_kwargs["tool_calls"]
    assert (plain["id"], plain["type"], plain["function"]["name"]) == (call.tool_call_id, "function", "add")
    assert json.loads(plain["function"]["arguments"]) == ARGUMENTS
    assert "invalid_tool_calls" not in message.additional_kwargs
    assert response.raw["finish_reason"] == "tool_calls"
    assert json.loads(json.dumps(response.raw)) == response.raw
    assert json.loads(message.model_dump_json())["additional_kwargs"] == message.additional_kwargs


@pytest.mark.parametrize("endpoint", TOOL_CHAT)
async def test_a_call_is_selected_with_its_arguments(endpoint: str) -> None:
    llm = tool_llm(CALL)
    response = await whole(llm, endpoint)
    (selected,) = llm.get_tool_calls_from_response(response)
    (block,) = (block for block in response.message.blocks if isinstance(block, ToolCallBlock))
    assert selected == ToolSelection(tool_id=block.tool_call_id or "", tool_name="add", tool_kwargs=ARGUMENTS)


@pytest.mark.parametrize("endpoint", TOOL_CHAT)
async def test_an_answer_in_prose_stays_one(endpoint: str) -> None:
    llm = tool_llm(PROSE)
    response = await whole(llm, endpoint)
    assert (response.message.content or "").strip() == "It is 44."
    assert "tool_calls" not in response.message.additional_kwargs
    assert response.raw["finish_reason"] == "stop"
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    with pytest.raises(OutputInvalid, match="It is 44") as caught:
        llm.get_tool_calls_from_response(response)
    assert isinstance(caught.value, ValueError)  # what the core's callers expect


@pytest.mark.parametrize("endpoint", ["stream_chat_with_tools", "astream_chat_with_tools"])
async def test_calls_grow_while_they_stream(endpoint: str) -> None:
    text = "a text that is long enough to come in many pieces, " * 3
    llm = tool_llm(f'<tool_call>\n{{"name": "mirror", "arguments": {{"text": "{text}"}}}}\n</tool_call>', words=True)
    responses = await ask(llm, endpoint, TOOLS, user_msg="Turn it.", tool_choice="required")
    growing = [kwargs["text"] for response in responses for _, kwargs in calls_of(response) if "text" in kwargs]
    assert len(set(growing)) > 5
    assert all(text.startswith(so_far) for so_far in growing)
    assert sorted(growing, key=len) == growing
    assert growing[-1] == text
    for response in responses:
        selected = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
        assert [(each.tool_name, each.tool_kwargs) for each in selected] == calls_of(response)
        plain = response.message.additional_kwargs.get("tool_calls", [])
        assert len(plain) == len(selected)
    assert (
        len({block.tool_call_id for r in responses for block in r.message.blocks if hasattr(block, "tool_call_id")})
        == 1
    )
    assert "".join(response.delta for response in responses) == (responses[-1].message.content or "")


def test_what_stands_before_a_call_is_text_and_its_delta() -> None:
    llm = tool_llm("Let me see.\n" + CALL)
    responses = list(llm.stream_chat_with_tools(TOOLS, user_msg="What is 3 + 41?"))
    last = responses[-1].message
    assert "".join(response.delta or "" for response in responses).strip() == "Let me see."
    assert [type(block) for block in last.blocks] == [ThinkingBlock, TextBlock, ToolCallBlock]
    thought = "".join(response.additional_kwargs.get("thinking_delta", "") for response in responses)
    assert thought == last.blocks[0].content


CUT = '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b"'


@pytest.mark.parametrize("endpoint", TOOL_CHAT)
async def test_a_call_that_is_cut_is_kept_as_it_was_written(endpoint: str, caplog: pytest.LogCaptureFixture) -> None:
    llm = tool_llm(CUT, words=True)
    response = await whole(llm, endpoint, tool_choice="add")
    assert calls_of(response) == []
    assert "tool_calls" not in response.message.additional_kwargs
    (invalid,) = response.message.additional_kwargs["invalid_tool_calls"]
    assert invalid["name"] == "add"
    assert '"a": 3, "b"' in invalid["raw"]
    assert invalid["error"]
    assert invalid["error"] in caplog.text  # once, for those who look at calls alone
    assert len(caplog.records) == 1
    assert llm.get_tool_calls_from_response(response, error_on_no_tool_call=False) == []
    with pytest.raises(OutputInvalid, match="call to add cannot be read") as caught:
        llm.get_tool_calls_from_response(response)
    assert caught.value.raw == invalid["raw"]


def test_a_call_that_was_cut_at_the_limit_says_so() -> None:
    llm = tool_llm(CUT + ": 41}}\n</tool_call>", words=True)
    response = llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", tool_required=True, max_tokens=20)
    assert response.raw["finish_reason"] == "length"
    with pytest.raises(OutputInvalid, match="raise max_tokens"):
        llm.get_tool_calls_from_response(response)


def test_the_model_reads_back_what_it_could_not_call() -> None:
    llm = tool_llm(CUT, "I meant 44.", words=True)
    broken = llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", tool_required=True).message
    llm.chat([*HELLO, broken, *HELLO])
    assert broken.additional_kwargs["invalid_tool_calls"][0]["raw"] in prompts(llm)[-1]


@pytest.mark.parametrize("endpoint", CHAT)
async def test_tools_are_taken_by_plain_chats(endpoint: str) -> None:
    for tools in (TOOLS, [tool.metadata.to_openai_tool() for tool in TOOLS]):
        response = (await ask(tool_llm(CALL), endpoint, HELLO, tools=tools))[-1]
        assert calls_of(response) == [("add", ARGUMENTS)]


def test_the_tools_reach_the_prompt() -> None:
    llm = tool_llm(CALL)
    llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?")
    assert "Add two numbers." in prompts(llm)[0]
    assert "mirror" in prompts(llm)[0]
    llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", tool_choice="none")
    assert "Add two numbers." not in prompts(llm)[1]


def test_the_history_is_left_as_it_was() -> None:
    llm = tool_llm(CALL)
    history = [ChatMessage(role="system", content="Be brief.")]
    llm.chat_with_tools(TOOLS, user_msg=ChatMessage(role="user", content="3 + 41?"), chat_history=history)
    assert history == [ChatMessage(role="system", content="Be brief.")]
    assert prompts(llm)[0].index("Be brief.") < prompts(llm)[0].index("3 + 41?")


@pytest.mark.parametrize(
    ("demand", "names"),
    [
        ({"tool_required": True}, {"add", "mirror"}),
        ({"tool_choice": "required"}, {"add", "mirror"}),
        ({"tool_choice": "any"}, {"add", "mirror"}),
        ({"tool_choice": {"type": "function", "function": {"name": "add"}}}, {"add"}),
        ({"tool_choice": "add", "tool_required": True}, {"add"}),
    ],
)
def test_a_demanded_call_is_held_by_a_grammar(demand: dict[str, Any], names: set[str]) -> None:
    llm = tool_llm(CALL)
    llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", **demand)
    (request,) = backend_of(llm.engine).requests
    assert request.constraint_spec is not None
    assert {name for name in ("add", "mirror") if name in request.constraint_spec.source} == names


def test_an_answer_in_a_form_beside_tools() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "Sum", "schema": {"type": "object", "properties": {}}}}
    llm = tool_llm("{}")
    response = llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", response_format=form)
    assert response.message.content == "{}"
    (request,) = backend_of(llm.engine).requests
    assert request.constraint_spec is not None
    assert request.constraint_spec.kind == "either"
    assert "Answer as JSON that fits this JSON schema" in prompts(llm)[0]


TWO = "".join(
    f"<tool_call>\n{json.dumps({'name': 'mirror', 'arguments': {'text': text}})}\n</tool_call>\n"
    for text in ("ab", "cd")
)
BOTH = [("mirror", {"text": "ab"}), ("mirror", {"text": "cd"})]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        ({}, BOTH[:1]),
        ({"allow_parallel_tool_calls": True}, BOTH),
        ({"parallel_tool_calls": True}, BOTH),
    ],
)
@pytest.mark.parametrize("endpoint", ["chat_with_tools", "achat_with_tools"])
async def test_one_call_unless_several_are_allowed(endpoint: str, allowed: dict[str, Any], expected: Any) -> None:
    response = await whole(tool_llm(TWO, words=True), endpoint, tool_required=True, **allowed)
    assert calls_of(response) == expected
    plain = [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in response.message.additional_kwargs["tool_calls"]
    ]
    assert plain == expected


def test_the_limit_to_one_call_reaches_the_grammar() -> None:
    specs = []
    for allowed in ({}, {"parallel_tool_calls": True}):
        llm = tool_llm(CALL, words=True)
        llm.chat_with_tools(TOOLS, user_msg="3 + 41?", tool_required=True, **allowed)
        specs.append(backend_of(llm.engine).requests[0].constraint_spec)
    assert specs[0] != specs[1]


async def test_predict_and_call_runs_the_tool() -> None:
    for predict in ("predict_and_call", "apredict_and_call"):
        for demand in ({}, {"tool_required": True}, {"tool_choice": "add"}):
            (answer,) = await ask(tool_llm(CALL), predict, TOOLS, user_msg="What is 3 + 41?", **demand)
            assert answer.response == "44"
            assert [(out.tool_name, out.raw_output) for out in answer.sources] == [("add", 44)]


async def test_predict_and_call_without_a_call() -> None:
    for predict in ("predict_and_call", "apredict_and_call"):
        llm = tool_llm(PROSE)
        for demand in ({}, {"tool_required": True}):
            with pytest.raises(OutputInvalid, match="no tool call"):
                await ask(llm, predict, TOOLS, user_msg="What is 3 + 41?", **demand)
            (answer,) = await ask(llm, predict, TOOLS, user_msg="3 + 41?", error_on_no_tool_call=False, **demand)
            assert (answer.sources, answer.response.strip()) == ([], "It is 44.")


async def test_predict_and_call_with_several_calls() -> None:
    llm = tool_llm(TWO, words=True)
    for predict in ("predict_and_call", "apredict_and_call"):
        (answer,) = await ask(llm, predict, TOOLS, user_msg="Turn.", tool_required=True, allow_parallel_tool_calls=True)
        assert answer.response == "ba\n\ndc"
        (answer,) = await ask(llm, predict, TOOLS, user_msg="Turn.", tool_required=True)
        assert answer.response == "ba"


def test_selections_from_calls_of_other_integrations() -> None:
    """A response that was made elsewhere: objects or dicts in OpenAI's shape, arguments as text."""
    llm = tool_llm(PROSE)
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4'}}
    message = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})
    (selected,) = llm.get_tool_calls_from_response(ChatResponse(message=message))
    assert selected == ToolSelection(tool_id="c1", tool_name="add", tool_kwargs={"a": 3, "b": 4})
    block = ToolCallBlock(tool_call_id="c2", tool_name="add", tool_kwargs='{"a": 3')
    (selected,) = llm.get_tool_calls_from_response(ChatResponse(message=ChatMessage(role="assistant", blocks=[block])))
    assert selected == ToolSelection(tool_id="c2", tool_name="add", tool_kwargs={"a": 3})


@pytest.mark.parametrize("words", [False, True])
def test_a_call_and_its_result_go_back_with_their_ids(words: bool) -> None:
    call = f"<tool_call>\n{json.dumps({'name': 'add', 'arguments': ARGUMENTS})}\n</tool_call>" if words else CALL
    llm = tool_llm(call, "It is 44." if words else PROSE, words=words)
    first = llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?", tool_required=True).message
    call_id = llm.get_tool_calls_from_response(ChatResponse(message=first))[0].tool_id
    result = ChatMessage(role=MessageRole.TOOL, content="forty-four", additional_kwargs={"tool_call_id": call_id})
    history = [ChatMessage(role="user", content="What is 3 + 41?"), first, result]
    # A chat store writes messages as JSON and reads them back.
    stored = [ChatMessage.model_validate_json(message.model_dump_json()) for message in history]
    for messages in (history, stored):
        again = llm.chat_with_tools(TOOLS, chat_history=messages, tool_choice="none")
        assert again.raw["finish_reason"] == "stop"
        assert "forty-four" in prompts(llm)[-1]
        arguments = "a 3, b 41" if words else '"a": 3, "b": 41'
        assert prompts(llm)[-1].count(arguments) == 1  # blocks and additional_kwargs both have the call


@pytest.mark.parametrize("endpoint", TOOL_CHAT)
async def test_chat_events_end_with_the_call(endpoint: str) -> None:
    handler = LlamaDebugHandler(print_trace_on_end=False)
    llm = tool_llm(CALL, callback_manager=CallbackManager([handler]))
    with recorded_events() as events:
        await whole(llm, endpoint)
    (start,) = (event for event in events if type(event).__name__ == "LLMChatStartEvent")
    assert [tool["function"]["name"] for tool in start.additional_kwargs["tools"]] == ["add", "mirror"]
    (end,) = (event for event in events if type(event).__name__ == "LLMChatEndEvent")
    assert calls_of(end.response) == [("add", ARGUMENTS)]
    (pair,) = handler.get_llm_inputs_outputs()
    assert calls_of(pair[1].payload["response"]) == [("add", ARGUMENTS)]


async def test_closing_a_stream_with_tools_ends_the_request() -> None:
    llm = tool_llm("Thought: " + "it goes on " * 300, delay=0.001)
    backend = backend_of(llm.engine)
    stream = llm.stream_chat_with_tools(TOOLS, user_msg="What is 3 + 41?")
    next(stream)
    stream.close()
    assert (backend.running, backend.closed) == (0, 1)
    later = await llm.astream_chat_with_tools(TOOLS, user_msg="What is 3 + 41?")
    await anext(later)
    await later.aclose()
    await until(lambda: backend.closed == 2)
    assert backend.running == 0


def test_tools_count_as_part_of_the_prompt() -> None:
    llm = tool_llm(CALL, context_length=60)
    with pytest.raises(ContextOverflow):
        llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?")


def test_a_prompt_that_the_user_writes_takes_no_tools() -> None:
    llm = tool_llm(CALL, messages_to_prompt=lambda messages: "prompt")
    with pytest.raises(UnsupportedInput, match="tools"):
        llm.chat_with_tools(TOOLS, user_msg="What is 3 + 41?")


def test_the_way_of_calls_is_a_setting_for_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Any] = []
    engine = tool_llm(CALL).engine

    def shared(model: Any, **options: Any) -> Any:
        asked_for.append((model, options))
        return engine

    monkeypatch.setattr("chatlocal.integrations.llama_index.shared_engine", shared)
    llm = LocalLLM("some/model", tool_format="hermes", call_threshold=2.5)
    assert llm.complete("Hello").text
    assert {repr(asked) for asked in asked_for} == {
        repr(("some/model", {"tool_format": "hermes", "call_threshold": 2.5}))
    }
    with pytest.raises(UnsupportedInput, match="tool_format"):
        LocalLLM(engine=engine, tool_format="hermes")


def test_a_bare_function_is_refused_with_what_to_pass() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(UnsupportedInput, match=r"FunctionTool\.from_defaults\(add\)"):
        tool_llm(PROSE).chat_with_tools([add], user_msg="What is 3 + 41?")  # type: ignore[list-item]
