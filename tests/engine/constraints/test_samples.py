"""Schemas from public collections with valid and invalid documents, where they lie beside the repository."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from chatlocal.engine import constraints
from chatlocal.engine.constraints.drafts import checker
from chatlocal.engine.errors import UnsupportedSchema
from tests.engine.constraints.reordering import reorder
from tests.engine.constraints.walking import walk
from tests.tiny import tiny_tokenizer

SHARED = Path(os.environ.get("CHATLOCAL_SHARED", Path(__file__).parents[4] / "shared"))
SAMPLES = SHARED / "grammar" / "schemas.json"

pytestmark = pytest.mark.skipif(not SAMPLES.is_file(), reason=f"the sample schemas are not at {SAMPLES}")

TOKENIZER = tiny_tokenizer()


@pytest.fixture(scope="module")
def samples():
    return json.loads(SAMPLES.read_text())


def accepted_schemas(samples, closed):
    for sample in samples:
        spec = constraints.json_schema(sample["schema"], closed=closed)
        try:
            yield sample, constraints.compile(spec, TOKENIZER)
        except UnsupportedSchema:
            continue


def dump(document, schema):
    return json.dumps(reorder(document, schema), ensure_ascii=False)


def excused(constraint, document, schema):
    """Whether every error of an accepted document is of a keyword that was reported as left to validation."""
    left = {entry.split()[0] for entry in constraint.left_to_validation}
    return all(error.validator in left for error in checker(schema).iter_errors(document))


def test_open_schemas(samples):
    count, refused_valid, accepted_invalid = 0, [], []
    for sample, constraint in accepted_schemas(samples, closed=False):
        count += 1
        schema = sample["schema"]
        refused_valid += [sample["id"] for each in sample["valid"] if not constraint.accepts(dump(each, schema))]
        accepted_invalid += [
            sample["id"]
            for each in sample["invalid"]
            if constraint.accepts(dump(each, schema)) and not excused(constraint, each, schema)
        ]
    assert refused_valid == []
    assert accepted_invalid == []
    assert count >= len(samples)  # all of the 94


def test_closed_schemas(samples):
    count, refused_valid, accepted_invalid = 0, [], []
    for sample, constraint in accepted_schemas(samples, closed=True):
        count += 1
        schema = sample["schema"]
        refused_valid += [sample["id"] for each in sample["valid"] if not constraint.accepts(dump(each, schema))]
        accepted_invalid += [
            sample["id"]
            for each in sample["invalid"]
            if constraint.accepts(dump(each, schema)) and not excused(constraint, each, schema)
        ]
    assert accepted_invalid == []
    assert count >= len(samples)
    # These carry keys that their schemas do not declare.
    assert set(refused_valid) <= {"Github_hard---o41252", "Github_medium---o61588", "Github_ultra---o83854"}


def test_random_text_is_valid(samples):
    invalid = []
    for sample, constraint in accepted_schemas(samples[::4], closed=True):
        text = walk(constraint, TOKENIZER, seed=1, steps=60, limit=6000)
        document = json.loads(text)
        if not excused(constraint, document, sample["schema"]):
            invalid.append((sample["id"], text[:300]))
    assert invalid == []
