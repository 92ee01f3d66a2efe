"""The first steps with LangChain: ask, stream, ask many at once, get a record, do it all in an event loop.

python examples/quickstart_langchain.py
python examples/quickstart_langchain.py --model path/or/hub-id
"""

from __future__ import annotations

import argparse
import asyncio

from pydantic import BaseModel

from chatlocal import ChatLocal


class Person(BaseModel):
    name: str
    age: int
    city: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    llm = ChatLocal(model=parser.parse_args().model, max_tokens=60)

    print("# invoke")
    reply = llm.invoke("What is the capital of France? Answer in one sentence.")
    print(reply.content)
    print(reply.usage_metadata)

    print("\n# stream")
    for chunk in llm.stream([("system", "You are a poet."), ("user", "Write one sentence about the sea.")]):
        print(chunk.text, end="", flush=True)
    print()

    print("\n# batch: the questions share the model's forward passes")
    cities = ["Italy", "Japan", "Egypt"]
    for city in llm.batch([f"What is the capital of {city}? Answer in one sentence." for city in cities]):
        print(city.content)

    print("\n# with_structured_output: always a Person, if not always the right one")
    reader = llm.with_structured_output(Person)
    print(reader.invoke("Maria is 34 years old and works in a bank in Lisbon."))

    print("\n# async")
    asyncio.run(ask_two(llm))


async def ask_two(llm: ChatLocal) -> None:
    questions = ("How many days has a week? Answer in one sentence.", "Name three fruits.")
    for reply in await asyncio.gather(*(llm.ainvoke(question) for question in questions)):
        print(reply.content)
    async for chunk in llm.astream("What is the capital of Portugal? Answer in one sentence."):
        print(chunk.text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
