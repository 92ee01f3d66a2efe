"""LlamaIndex's FunctionAgent with two tools, on a model in this process.

    python examples/agent_llama_index.py
    python examples/agent_llama_index.py --model path/or/hub-id --question "How is the weather in Lisbon?"
    python examples/agent_llama_index.py --model path/or/hub-id --retell

The agent asks the model and runs the tool that it calls. Here it ends with the result of the tool (`return_direct`);
with --retell the model is given the result, may call again, and answers in its own words.

The embedded model was never trained for tools and has 135 million parameters. Its calls are well formed, since it can
write nothing else once a call is decided on; whether to call, and what, is decided by how likely the model finds it. It
copies the name that a plain question holds. It does not plan, compare or calculate, and retells results wrongly, so
that --retell is for models of some billion parameters that were trained for tools.
"""

from __future__ import annotations

import argparse
import asyncio

from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.tools import FunctionTool
from pydantic import Field

from chatlocal import LocalLLM

# Real functions would ask a weather service and an almanac.
WEATHER = {"hangzhou": "light rain, 21 degrees", "lisbon": "sunny, 24 degrees", "oslo": "snow, 1 degree"}
POPULATION = {"norway": "5.6 million", "portugal": "10.7 million", "china": "1.4 billion"}
QUESTIONS = ("What is the weather in Oslo?", "How many people live in Norway?", "What is the capital of France?")


def get_weather(city: str = Field(description="Name of the city")) -> str:
    """Get the weather in a city."""
    return WEATHER.get(city.strip().lower(), f"no weather is known for {city}")


def population(country: str = Field(description="Name of the country")) -> str:
    """Look up how many people live in a country."""
    return POPULATION.get(country.strip().lower(), f"nobody has counted the people of {country}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--question", action="append", help="may be given several times")
    parser.add_argument("--retell", action="store_true", help="let the model answer in its own words")
    arguments = parser.parse_args()
    tools = [FunctionTool.from_defaults(each, return_direct=not arguments.retell) for each in (get_weather, population)]
    llm = LocalLLM(model=arguments.model, temperature=0, max_tokens=60)
    agent = FunctionAgent(llm=llm, tools=tools)
    asyncio.run(ask_all(agent, arguments.question or QUESTIONS))


async def ask_all(agent: FunctionAgent, questions: list[str] | tuple[str, ...]) -> None:
    for question in questions:
        print(f"Question  {question}", flush=True)
        run = agent.run(question, max_iterations=5)
        async for event in run.stream_events():
            if isinstance(event, ToolCallResult):
                called = ", ".join(f"{name}={value!r}" for name, value in event.tool_kwargs.items())
                print(f"Call      {event.tool_name}({called}) -> {event.tool_output.content}", flush=True)
        print(f"Answer    {await run}\n")


if __name__ == "__main__":
    main()
