"""A model that looks something up: it calls a function of yours, reads what came back, and answers.

    python examples/tools.py
    python examples/tools.py --model path/or/hub-id --question "Is it warmer in Hangzhou or in Oslo?"

All of it is shown while it is written: the thought (of models that think), the call, its result and the answer.

The embedded model has 135 million parameters and was never trained for tools. Its calls are well formed all the same,
because it can write nothing else once a call is decided on; whether to call is decided by how likely the model finds
it. Expect the right city for most plain questions and not much more: it copies some names wrongly, with two cities or a
sum it goes astray, and it may forget the result when it answers. Models of a few billion parameters that were trained
for tools do this well.
"""

from __future__ import annotations

import argparse
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool

from chatlocal import ChatLocal

# Numbers of an afternoon in October. A real function would ask a weather service.
WEATHER = {
    "beijing": "sunny, 17 degrees",
    "hangzhou": "light rain, 21 degrees",
    "lisbon": "sunny, 24 degrees",
    "oslo": "snow, 1 degree",
}


@tool
def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    return WEATHER.get(city.strip().lower(), f"no weather is known for {city}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--question", default="What is the weather like in Hangzhou?")
    arguments = parser.parse_args()
    llm = ChatLocal(model=arguments.model, temperature=0, max_tokens=200)
    print(f"Model     {llm.engine.describe()['model']}")
    print(f"Question  {arguments.question}", flush=True)
    answer(llm, arguments.question)


def answer(llm: ChatLocal, question: str, rounds: int = 3) -> None:
    """Ask; as long as the model calls functions, run them and tell it what came back."""
    messages: list[BaseMessage] = [HumanMessage(question)]
    with_tools = llm.bind_tools([get_weather])
    for _ in range(rounds):
        reply = show(with_tools, messages)
        messages.append(reply)
        for broken in reply.invalid_tool_calls:
            print(f"Broken    {broken['args']}")
        if not reply.tool_calls:
            return
        for call in reply.tool_calls:
            result = get_weather.invoke(call)  # a ToolMessage, because a call went in
            assert isinstance(result, ToolMessage)
            print(f"Result    {result.content}", flush=True)
            messages.append(result)


def show(llm: Runnable[Any, Any], messages: list[BaseMessage]) -> AIMessage:
    """Print a reply piece by piece, each kind under its name."""
    whole: AIMessageChunk | None = None
    shown = ""
    for chunk in llm.stream(messages):
        whole = chunk if whole is None else whole + chunk
        pieces = [("Thought", chunk.additional_kwargs.get("reasoning_content", ""))]
        for piece in chunk.tool_call_chunks:  # the name comes once, and then the arguments bit by bit
            pieces.append(("Call", f"{piece['name']} {piece['args']}" if piece["name"] else piece["args"] or ""))
        pieces += [("Answer", chunk.text)]
        for kind, text in pieces:
            if text:
                begins = kind != shown
                print(("\n" if begins and shown else "") + (f"{kind:10}" if begins else "") + text, end="", flush=True)
                shown = kind
    print()
    assert whole is not None
    return whole


if __name__ == "__main__":
    main()
