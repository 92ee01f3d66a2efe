"""Answers that are refused and asked for again: what is judged, what the model is told, what is kept."""

from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
from pydantic import BaseModel

from chatlocal.engine.constraints.validation import check
from chatlocal.engine.errors import OutputInvalid, Try
from chatlocal.engine.repair import Tries, as_json


class Dog(BaseModel):
    age: int


def tries(retries: int = 2) -> Tries[Dog]:
    return Tries(partial(check, Dog), retries)


def test_an_answer_that_fits_is_read_and_ends_it() -> None:
    one = tries()
    one.take('{"age": 3}')
    assert not one.again
    assert one.value() == Dog(age=3)
    assert one.made == (Try('{"age": 3}', None),)


def test_refused_ones_are_asked_for_again_as_often_as_allowed() -> None:
    many = tries(retries=2)
    wishes = []
    for _ in range(3):
        many.take('{"age": "old"}')
        wishes.append(many.again)
    assert wishes == [True, True, False]
    with pytest.raises(OutputInvalid, match=r"/age: .*valid integer.* \(after 3 tries\)") as caught:
        many.value()
    assert (caught.value.raw, caught.value.tries) == ('{"age": "old"}', many.made)
    assert len(many.made) == 3
    assert all("valid integer" in (one.error or "") and "tries" not in (one.error or "") for one in many.made)


def test_the_model_is_told_why() -> None:
    wrong = tries()
    wrong.take('{"age": "old"}')
    assert "valid integer" in wrong.complaint()
    assert "arguments" in wrong.complaint(call=True)


def test_an_answer_that_was_cut_is_not_asked_for_again() -> None:
    cut = tries()
    cut.take('{"age": ', cut=True)
    assert not cut.again
    with pytest.raises(OutputInvalid, match=r"raise max_tokens.* \(after 1 try\)"):
        cut.value()


def test_an_answer_that_is_whole_at_its_limit_counts() -> None:
    whole = tries()
    whole.take('{"age": 3}', cut=True)
    assert whole.value() == Dog(age=3)


def test_tries_go_on_from_earlier_ones() -> None:
    later = Tries(partial(check, Dog), 1, [Try("x", "no JSON")])
    later.take("{}")
    assert not later.again
    assert as_json(later.made)[0] == {"answer": "x", "error": "no JSON"}
    assert len(later.made) == 2


def test_the_error_keeps_its_tries_when_it_is_copied() -> None:
    error = OutputInvalid("no", "{}", (Try("x", "no JSON"), Try("{}", "no age")))
    for same in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert (str(same), same.raw, same.tries) == ("no", "{}", error.tries)
    assert OutputInvalid("no", "{}").tries == ()
