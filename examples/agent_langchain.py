"""LangChain's create_agent with two tools, on a model in this process.

    python examples/agent_langchain.py
    python examples/agent_langchain.py --model path/or/hub-id --question "How old is Rex?"

The agent asks the model, runs the tools that it calls, gives it the results, and ends when it answers in text.

The embedded model was never trained for tools and has 135 million parameters: it finds the tool for a question that
names its subject, and it cannot plan, compare or do sums. Its loops end here after a few steps. For real work give the
agent a model of some billion parameters that was trained for tools; nothing else has to change.
"""

from __future__ import annotations

import argparse
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.errors import GraphRecursionError

from chatlocal import ChatLocal

DOGS = {"harry": "beagle, brown, 4 years", "rex": "terrier, black, 9 years", "luna": "poodle, white, 2 years"}
WEATHER = {"beijing": "sunny, 17 degrees", "hangzhou": "light rain, 21 degrees", "oslo": "snow, 1 degree"}

QUESTIONS = ("Look up the dog Harry, please.", "What is the weather like in Oslo?", "Who wrote Hamlet?")


def find_dog(name: str) -> str:
    """Look up a dog of the shelter by its name."""
    return DOGS.get(name.strip().lower(), f"there is no dog called {name}")


def get_weather(city: str) -> str:
    """Get the current weather in a city."""
    return WEATHER.get(city.strip().lower(), f"no weather is known for {city}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--question", action="append", help="may be given several times")
    arguments = parser.parse_args()
    llm = ChatLocal(model=arguments.model, temperature=0, max_tokens=100)
    agent = create_agent(llm, tools=[find_dog, get_weather])
    for question in arguments.question or QUESTIONS:
        print(f"Question  {question}", flush=True)
        ask(agent, question)


def ask(agent: Any, question: str) -> None:
    """Show the steps of the agent as they are done."""
    steps = agent.stream({"messages": [("user", question)]}, {"recursion_limit": 6}, stream_mode="updates")
    try:
        for step in steps:
            for update in step.values():
                for message in update["messages"]:
                    show(message)
    except GraphRecursionError:
        print("Stopped   the model went on calling")
    print()


def show(message: BaseMessage) -> None:
    if isinstance(message, AIMessage):
        for call in message.tool_calls:
            print(f"Call      {call['name']} {call['args']}")
        if message.text:
            print(f"Answer    {message.text}")
    elif isinstance(message, ToolMessage):
        print(f"Result    {message.content}")


if __name__ == "__main__":
    main()
