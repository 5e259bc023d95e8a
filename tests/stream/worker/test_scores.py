"""A worker on a partition of scores with its own models: one when a round ends and at no other time, the same bytes
anyone who does it."""

import json
from pathlib import Path

import pytest

from murk.stream.log.sqlite import SqliteLog
from murk.stream.worker.worker import Worker
from tests.protocols import OWN_MODELS
from tests.stream.harness import drain, fault_task, learner_for, message, put, state_of

TASK = fault_task(OWN_MODELS)
STARTS = learner_for(TASK).settings.survey.starts
END = STARTS[-1]
RELEASES = END + 6_100


@pytest.fixture(scope="module")
def messages() -> list[bytes]:
    return [message(TASK, number) for number in range(RELEASES)]


def lives(path: Path, messages: list[bytes], batches: list[int], steps: int) -> tuple[list[bytes], bytes, bytes]:
    """Models let out between commits, the model and the state at the end, after workers of such batches took turns.

    What is let out does not reach the log, which is to come out the same.
    """
    found: list[bytes] = []
    with SqliteLog(path) as log:
        log.register_task(TASK.document())
        put(log, messages)
        for batch in batches:
            with Worker(log, TASK, learner_for(TASK), batch=batch) as worker:
                worker._ownership.publish_uncommitted = found.append  # type: ignore[method-assign]
                for _ in range(steps):
                    worker.step()
        with Worker(log, TASK, learner_for(TASK)) as worker:
            drain(worker)
        model = log.model(0)
        assert model is not None
        return found, model, json.dumps(state_of(log).learner).encode()


def versions(models: list[bytes]) -> list[int]:
    return [json.loads(model)["version"] for model in models]


def test_models_come_out_when_epochs_end(tmp_path: Path, messages: list[bytes]) -> None:
    at_once, model, state = lives(tmp_path / "whole.db", messages, [16_384], 1)
    # Devices need not wait for the end of the step.
    assert versions(at_once) == [*STARTS[1:], END + 3_000, END + 6_000]
    assert at_once[-1] == model
    # Workers that end between and amid rounds, one at a round's end.
    pieces, again, other = lives(tmp_path / "pieces.db", messages, [1_000, 700, 450, 2_500], 2)
    assert (again, other) == (model, state)
    assert set(pieces) == set(at_once)


def test_a_model_that_was_lost_is_published_again_by_the_next_worker(tmp_path: Path, messages: list[bytes]) -> None:
    with SqliteLog(tmp_path / "log.db") as log:
        log.register_task(TASK.document())
        put(log, messages[: END + 3_200])
        with Worker(log, TASK, learner_for(TASK)) as worker:
            drain(worker)
        model = log.model(0)
        assert model is not None
        log.publish(0, b"somebody else's")
        with Worker(log, TASK, learner_for(TASK)) as worker:
            drain(worker)
        assert (log.model(0), versions([model])) == (model, [END + 3_000])
