"""Tools through bind_tools: how they may be written, what is chosen, and the calls that come out."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableBinding, RunnableLambda
from langchain_core.tools import tool
from pydantic import BaseModel, Field
from pydantic.v1 import BaseModel as BaseModelV1
from typing_extensions import TypedDict

from chatlocal import ChatLocal
from chatlocal.engine.errors import UnsupportedInput
from chatlocal.integrations import langchain as module
from chatlocal.integrations.langchain_tools import openai_tools
from tests.integrations.chatml_tools import HERMES
from tests.scripted import backend_of, scripted_engine
from tests.tiny import tiny_tokenizer

ARGUMENTS = '{"city": "杭州"}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
CUT = '<tool_call>\n{"name": "weather", "arguments": {"city": "Hang'


def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: its name
    """
    return f"sunny in {city}"


def time() -> str:
    """What time it is."""
    return "noon"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Search(BaseModel):
    """Search the web."""

    query: str = Field(description="what for")


class OldSearch(BaseModelV1):
    """Search the web."""

    query: str


class Tree(BaseModel):
    """A tree."""

    height: int
    branches: list[Tree] = []


class OldTree(BaseModelV1):
    """A tree."""

    height: int
    branches: list[OldTree] = []


OldTree.update_forward_refs()


@tool(args_schema=Tree)
def plant(height: int, branches: list[Tree]) -> str:
    """A tree."""
    return "planted"


class SearchDict(TypedDict):
    """Search the web."""

    query: Annotated[str, ..., "what for"]


QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


def chat(*answers: str, template: str = HERMES, **settings: Any) -> ChatLocal:
    return ChatLocal(engine=scripted_engine(*(answers or (CALL,)), template=template, context_length=4096), **settings)


def prompt(model: ChatLocal) -> str:
    return str(tiny_tokenizer().decode(backend_of(model.engine).requests[-1].prompt_ids))


def calls(message: AIMessage) -> list[tuple[str, dict[str, Any]]]:
    return [(call["name"], call["args"]) for call in message.tool_calls]


def total(chunks: list[Any]) -> AIMessageChunk:
    whole = sum(chunks[1:], start=chunks[0])
    assert isinstance(whole, AIMessageChunk)
    return whole


class TestTools:
    @pytest.mark.parametrize(
        ("given", "name", "arguments"),
        [
            (weather, "weather", {"city"}),
            (time, "time", set()),
            (add, "add", {"a", "b"}),
            (Search, "Search", {"query"}),
            (OldSearch, "OldSearch", {"query"}),
            (SearchDict, "SearchDict", {"query"}),
            ({"type": "function", "function": {"name": "look", "parameters": QUERY}}, "look", {"query"}),
            ({"name": "look", "description": "Look.", "input_schema": QUERY}, "look", {"query"}),
            ({"title": "look", "description": "Look.", **QUERY}, "look", {"query"}),
            ({"name": "look"}, "look", set()),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    @pytest.mark.parametrize("strict", [None, True, False])
    def test_of_every_kind_reach_the_prompt_and_the_grammar(
        self, given: Any, name: str, arguments: set[str], strict: bool | None
    ) -> None:
        model = chat()
        bound = model.bind_tools([given], tool_choice="any", strict=strict)
        assert isinstance(bound, RunnableBinding)
        bound.invoke("hi")
        shown = json.loads(prompt(model).split("<tools>")[1].split("</tools>")[0])
        assert shown["function"]["name"] == name
        assert set(shown["function"]["parameters"]["properties"]) == arguments
        constraint = json.loads(backend_of(model.engine).requests[-1].constraint_spec.source)
        assert f'\\"{name}\\"' in constraint["lark"]
        assert [set(schema["properties"]) for schema in constraint["schemas"].values()] == [arguments]

    @pytest.mark.parametrize("given", [Tree, OldTree, plant])
    def test_of_classes_that_hold_themselves_keep_their_schema_to_the_ground(self, given: Any) -> None:
        [shown] = openai_tools([given])
        check = Draft202012Validator(shown["function"]["parameters"]).is_valid
        assert check({"height": 1, "branches": [{"height": 2, "branches": [{"height": 3}]}]})
        assert not check({"height": 1, "branches": [{"height": 2, "branches": [{"height": "tall"}]}]})
        assert "A tree." in shown["function"]["description"]

    @pytest.mark.filterwarnings("ignore::langchain_core._api.LangChainBetaWarning")
    def test_may_be_made_of_a_runnable(self) -> None:
        model = chat('<tool_call>\n{"name": "ask", "arguments": {"city": "Rome"}}\n</tool_call>')
        asked = (PromptTemplate.from_template("{city}") | RunnableLambda(str)).as_tool(name="ask", description="Ask.")
        assert calls(model.bind_tools([asked], tool_choice="ask").invoke("hi")) == [("ask", {"city": "Rome"})]

    @pytest.mark.parametrize("given", ["weather", 3, {"type": "object"}, {"type": "web_search"}, None])
    def test_that_are_none_are_refused(self, given: Any) -> None:
        with pytest.raises(UnsupportedInput):
            chat().bind_tools([given])

    def test_come_as_a_list(self) -> None:
        with pytest.raises(UnsupportedInput, match="as a list"):
            chat().bind_tools("weather")

    def test_of_one_name_are_refused_by_the_call(self) -> None:
        bound = chat().bind_tools([weather, weather])
        with pytest.raises(UnsupportedInput, match="'weather'"):
            bound.invoke("hi")

    def test_may_be_none(self) -> None:
        model = chat('{"a": 1}')
        form = {"type": "json_schema", "json_schema": {"name": "A", "schema": {"type": "object"}}}
        assert model.bind_tools([], response_format=form, strict=True).invoke("hi").content == '{"a": 1}'
        assert backend_of(model.engine).requests[-1].constraint_spec.kind == "json_schema"

    def test_may_be_arguments_of_a_call(self) -> None:
        for arguments in ({"tools": [weather]}, {"tools": [weather], "tool_choice": "weather"}):
            assert calls(chat().invoke("hi", **arguments)) == [("weather", {"city": "杭州"})]
        assert calls(chat().bind(tools=[weather]).invoke("hi")) == [("weather", {"city": "杭州"})]

    def test_are_counted_as_tokens_of_the_prompt(self) -> None:
        model = chat()
        messages = [HumanMessage("hi")]
        reply = model.bind_tools([weather]).invoke(messages)
        assert reply.usage_metadata is not None
        assert model.get_num_tokens_from_messages(messages, tools=[weather]) == reply.usage_metadata["input_tokens"]
        assert model.get_num_tokens_from_messages(messages) < reply.usage_metadata["input_tokens"]


class TestChoice:
    @pytest.mark.parametrize("choice", [None, "auto", {"type": "auto"}])
    def test_left_to_the_model(self, choice: Any) -> None:
        model = chat(CALL, "It is sunny.")
        bound = model.bind_tools([weather], tool_choice=choice)
        assert calls(bound.invoke("hi")) == [("weather", {"city": "杭州"})]
        assert bound.invoke("hi").content == "It is sunny."

    @pytest.mark.parametrize("choice", ["any", "required", True, {"type": "any"}])
    def test_of_any_demands_a_call_of_any(self, choice: Any) -> None:
        model = chat()
        model.bind_tools([weather, time], tool_choice=choice).invoke("hi")
        grammar = backend_of(model.engine).requests[-1].constraint_spec.source
        assert "weather" in grammar
        assert "time" in grammar

    @pytest.mark.parametrize(
        "choice",
        ["weather", {"type": "function", "function": {"name": "weather"}}, {"type": "tool", "name": "weather"}],
    )
    def test_of_one_tool_demands_this_one(self, choice: Any) -> None:
        model = chat()
        assert calls(model.bind_tools([weather, time], tool_choice=choice).invoke("hi"))
        grammar = backend_of(model.engine).requests[-1].constraint_spec.source
        assert "weather" in grammar
        assert "time" not in grammar

    @pytest.mark.parametrize("choice", ["none", False, {"type": "none"}])
    def test_of_none_answers_in_text(self, choice: Any) -> None:
        model = chat("hello")
        assert model.bind_tools([weather], tool_choice=choice).invoke("hi").content == "hello"
        assert "weather" not in prompt(model)
        assert backend_of(model.engine).requests[-1].constraint_spec is None

    def test_of_a_name_that_is_none_lists_the_tools_when_it_is_bound(self) -> None:
        for choice in ("wether", {"type": "function", "function": {"name": "wether"}}):
            with pytest.raises(ValueError, match="'wether' and the tools are weather, time"):
                chat().bind_tools([weather, time], tool_choice=choice)
            with pytest.raises(UnsupportedInput, match="'wether' and the tools are weather"):
                chat().invoke("hi", tools=[weather], tool_choice=choice)

    def test_of_a_call_needs_tools(self) -> None:
        with pytest.raises(UnsupportedInput, match="there are no tools"):
            chat().bind_tools([], tool_choice="any")
        with pytest.raises(UnsupportedInput, match="tool_choice takes"):
            chat().bind_tools([weather], tool_choice=3)

    def test_of_several_calls(self) -> None:
        model = chat(f"{CALL}\n{CALL}")
        grammars = []
        for parallel in (True, False):
            model.bind_tools([weather], tool_choice="any", parallel_tool_calls=parallel).invoke("hi")
            grammars.append(backend_of(model.engine).requests[-1].constraint_spec.source)
        assert grammars[0] != grammars[1]
        with pytest.raises(UnsupportedInput, match="parallel_tool_calls"):
            model.invoke("hi", tools=[weather], parallel_tool_calls="no")


class TestAnswer:
    def test_has_the_call_with_id_and_type(self) -> None:
        reply = chat(f"Let me look.\n{CALL}").bind_tools([weather]).invoke("hi")
        assert type(reply) is AIMessage
        assert reply.content == "Let me look."
        [call] = reply.tool_calls
        assert call == {"name": "weather", "args": {"city": "杭州"}, "id": call["id"], "type": "tool_call"}
        assert call["id"]
        assert reply.invalid_tool_calls == []
        assert reply.additional_kwargs == {}
        assert reply.response_metadata["finish_reason"] == "tool_calls"
        assert [block["type"] for block in reply.content_blocks] == ["text", "tool_call"]

    async def test_streams_the_name_and_id_once_and_then_the_arguments(self) -> None:
        model = chat(f"Let me look.\n{CALL}\n{CALL}").bind_tools([weather])
        chunks = list(model.stream("hi"))
        pieces = [piece for chunk in chunks for piece in chunk.tool_call_chunks]
        for index in (0, 1):
            own = [piece for piece in pieces if piece["index"] == index]
            assert [piece["name"] for piece in own] == ["weather"] + [None] * (len(own) - 1)
            assert [bool(piece["id"]) for piece in own] == [True] + [False] * (len(own) - 1)
            assert own[0]["args"] == ""
            assert "".join(piece["args"] or "" for piece in own) == ARGUMENTS
            assert len(own) > 5
        assert {piece["index"] for piece in pieces} == {0, 1}
        assert [chunk.chunk_position for chunk in chunks] == [None] * (len(chunks) - 1) + ["last"]

        whole = total(chunks)
        assert len({call["id"] for call in whole.tool_calls}) == 2
        for other in (model.invoke("hi"), await model.ainvoke("hi"), total([c async for c in model.astream("hi")])):
            assert calls(other) == calls(whole) == [("weather", {"city": "杭州"})] * 2
            assert other.content == whole.content == "Let me look."
            assert other.usage_metadata == whole.usage_metadata
            assert other.response_metadata == whole.response_metadata

    def test_of_a_tool_without_parameters(self) -> None:
        for written in ('{"name": "time", "arguments": {}}', '{"name": "time"}'):
            model = chat(f"<tool_call>\n{written}\n</tool_call>").bind_tools([time])
            assert calls(model.invoke("hi")) == [("time", {})]
            assert calls(total(list(model.stream("hi")))) == [("time", {})]

    def test_keeps_text_thinking_and_calls_apart_as_content_blocks(self) -> None:
        model = chat(f"<think>\nhm\n</think>\n\nI look.\n{CALL}\n{CALL}", output_version="v1").bind_tools([weather])
        expected = ["reasoning", "text", "tool_call", "tool_call"]
        reply = model.invoke("hi")
        assert [block["type"] for block in reply.content_blocks] == expected
        whole = total(list(model.stream("hi")))
        assert [block["type"] for block in whole.content_blocks] == expected
        assert [block.get("args") for block in whole.content_blocks][2:] == [{"city": "杭州"}] * 2
        assert calls(whole) == calls(reply)

    def test_of_qwens_first_models_has_the_thought_as_reasoning(self) -> None:
        written = f"Thought: I should look.\nAction: weather\nAction Input: {ARGUMENTS}"
        model = chat(written, template="qwen").bind_tools([weather])
        for reply in (model.invoke("hi"), total(list(model.stream("hi")))):
            assert reply.content == ""
            assert reply.additional_kwargs == {"reasoning_content": "I should look."}
            assert calls(reply) == [("weather", {"city": "杭州"})]
            assert reply.response_metadata["finish_reason"] == "tool_calls"
            assert reply.usage_metadata is not None
            assert reply.usage_metadata["output_token_details"]["reasoning"] > 0

    async def test_goes_through_the_events_of_version_3(self) -> None:
        model = chat(f"Let me look.\n{CALL}").bind_tools([weather])
        events = list(model.stream_events("hi", version="v3"))
        finished = [event["content"] for event in events if event["event"] == "content-block-finish"]
        assert [block["type"] for block in finished] == ["text", "tool_call"]
        assert finished[1]["args"] == {"city": "杭州"}

    def test_without_a_call_beside_a_response_format_has_the_form(self) -> None:
        model = chat('{"query": "x"}', CALL)
        bound = model.bind_tools([weather], response_format=Search)
        assert bound.invoke("hi").content == '{"query": "x"}'
        assert "what for" in prompt(model)
        assert "query" in backend_of(model.engine).requests[-1].constraint_spec.source
        assert calls(bound.invoke("hi")) == [("weather", {"city": "杭州"})]

    def test_that_must_be_a_call_is_not_asked_for_as_json(self) -> None:
        model = chat()
        model.bind_tools([weather], tool_choice="any", response_format=Search).invoke("hi")
        assert "what for" not in prompt(model)


class TestBrokenCall:
    """What langchain_core does with `{"city": "Hang`, left alone, is to make a call for the city of Hang."""

    @pytest.mark.parametrize(
        "arguments",
        [
            '{"city": "Hang',
            '{"city": "Hang\\',
            '{"city": ["Hang',
            '{"city": ["Hang"',
            '{"city": {"a": 1}, ',
            "{",
            '{"a',
        ],
    )
    async def test_is_an_invalid_one_however_it_was_cut(self, arguments: str) -> None:
        raw = f'{{"name": "weather", "arguments": {arguments}'
        model = chat(f"<tool_call>\n{raw}").bind_tools([weather])
        reply = model.invoke("hi")
        assert reply.tool_calls == []
        [broken] = reply.invalid_tool_calls
        assert (broken["name"], broken["args"]) == ("weather", raw.strip())
        assert broken["error"]
        assert broken["id"]
        assert (await model.ainvoke("hi")).invalid_tool_calls[0]["args"] == raw.strip()

        for chunks in (list(model.stream("hi")), [chunk async for chunk in model.astream("hi")]):
            whole = total(chunks)
            assert whole.tool_calls == []
            [summed] = whole.invalid_tool_calls
            assert summed["name"] == "weather"
            assert (summed["args"] or "").startswith(arguments.strip().removesuffix(","))
            [told] = whole.response_metadata["invalid_tool_calls"]
            assert (told["args"], told["error"], told["id"]) == (raw.strip(), broken["error"], summed["id"])

    def test_at_max_tokens_says_length(self) -> None:
        reply = chat().bind_tools([weather]).invoke("hi", max_tokens=40)
        assert reply.response_metadata["finish_reason"] == "length"
        assert reply.tool_calls == []
        assert len(reply.invalid_tool_calls) == 1

    def test_beside_a_good_one_leaves_that_as_it_is(self) -> None:
        model = chat(f"{CALL}\n{CUT}").bind_tools([weather])
        for reply in (model.invoke("hi"), total(list(model.stream("hi")))):
            assert calls(reply) == [("weather", {"city": "杭州"})]
            assert [broken["name"] for broken in reply.invalid_tool_calls] == ["weather"]

    def test_without_a_name_keeps_its_text(self) -> None:
        model = chat('<tool_call>\n{"nme": {"city": "Hangzhou"}}\n</tool_call>').bind_tools([weather])
        reply = model.invoke("hi")
        assert reply.tool_calls == []
        [broken] = reply.invalid_tool_calls
        assert (broken["name"], broken["args"]) == (None, '{"nme": {"city": "Hangzhou"}}')
        whole = total(list(model.stream("hi")))
        assert (whole.tool_calls, len(whole.invalid_tool_calls)) == ([], 1)

    def test_is_invalid_in_the_events_of_version_3(self) -> None:
        events = list(chat(CUT).bind_tools([weather]).stream_events("hi", version="v3"))
        finished = [event["content"] for event in events if event["event"] == "content-block-finish"]
        assert [block["type"] for block in finished] == ["invalid_tool_call"]


class TestSettings:
    def test_of_calls_go_to_the_engine_that_is_loaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[Any] = []
        engine = scripted_engine("hi")
        monkeypatch.setattr(module, "shared_engine", lambda name, **options: asked.append(options) or engine)
        model = ChatLocal("some/where", tool_format="hermes", call_threshold=0.5)
        model.invoke("hi")
        model.invoke("hi", model="else/where")
        assert asked == [{"tool_format": "hermes", "call_threshold": 0.5}, {}]
        assert model._identifying_params["tool_format"] == "hermes"
        assert model._identifying_params["call_threshold"] == 0.5

    def test_of_calls_contradict_a_given_engine(self) -> None:
        with pytest.raises(UnsupportedInput, match="leave out tool_format"):
            ChatLocal(engine=scripted_engine("hi"), tool_format="hermes")

    def test_that_switch_streaming_off_for_tools(self) -> None:
        model = chat(disable_streaming="tool_calling")
        assert len(list(model.bind_tools([weather]).stream("hi"))) == 1
        assert len(list(model.stream("hi"))) > 1

    def test_profile_says_what_can_be_done_with_tools(self) -> None:
        profile = chat().profile
        assert profile is not None
        assert (profile["tool_calling"], profile["tool_choice"], profile["tool_call_streaming"]) == (True, True, True)
