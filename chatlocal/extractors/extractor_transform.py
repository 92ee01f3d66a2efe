"""An Extractor as a step of LlamaIndex's ingestion pipelines: records go into the metadata of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict
from llama_index.core.schema import BaseNode, MetadataMode, TransformComponent

from chatlocal.extractors.extractor import Extractor
from chatlocal.extractors.results import Extraction
from chatlocal.extractors.run_settings import settings_of


class ExtractorTransform(TransformComponent):
    """Puts what an Extractor finds in a node's text into its metadata.

    Under `metadata_key` stands the list of records' data; what went wrong stands under that key with "_failures" behind
    it, as texts. Both keys are kept out of the texts that are embedded and shown to a model.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    extractor: Extractor
    metadata_key: str = "records"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        found = self.extractor.batch([_text(node) for node in nodes])
        return [self._with(node, one) for node, one in zip(nodes, found, strict=True)]

    async def acall(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        found = await self.extractor.abatch([_text(node) for node in nodes])
        return [self._with(node, one) for node, one in zip(nodes, found, strict=True)]

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """What a pipeline's cache tells transformations apart by: an extractor is no plain value, its settings are."""
        settings = settings_of(self.extractor)
        return {"class_name": self.class_name(), "metadata_key": self.metadata_key, **settings}

    @classmethod
    def class_name(cls) -> str:
        return "ChatLocalExtractor"

    def _with(self, node: BaseNode, found: Extraction) -> BaseNode:
        failures = f"{self.metadata_key}_failures"
        node.metadata[self.metadata_key] = [record.data for record in found.records]
        added = [self.metadata_key]
        if found.failures:
            node.metadata[failures] = [failure.message for failure in found.failures]
            added.append(failures)
        for keys in (node.excluded_embed_metadata_keys, node.excluded_llm_metadata_keys):
            keys.extend(key for key in added if key not in keys)
        return node


def extractor_transform(extractor: Extractor, metadata_key: str) -> ExtractorTransform:
    """The transformation of an extractor."""
    return ExtractorTransform(extractor=extractor, metadata_key=metadata_key)


def _text(node: BaseNode) -> str:
    return node.get_content(metadata_mode=MetadataMode.NONE)
