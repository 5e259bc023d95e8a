"""Models fitted to a log on a real broker: topics of their own, a killed fit, and the bits of a fit in a file."""

import time
import uuid
from contextlib import closing

from murk.stream import open_log
from murk.stream.log.kafka.topics import Names
from tests.cli.harness import ANY_PROTOCOL, murk, start, world
from tests.services.clients import KafkaAdminClient

TASK = ANY_PROTOCOL.replace("mu: 1.0", "mu: 3.0") + "protocol: examples\nlog: {partitions: 2}\n"
MODELS = {
    "same-sex": "name: same-sex\nfeatures: [same_sex]\n",
    "age": "name: age\nfeatures: [third_child]\ntarget: age\n",
}
LOG = "sqlite:///file.db"


def committed(url):
    with open_log(url, create=False, model="age") as log:
        return sum(log.checkpoint(partition).offset for partition in range(2))


def test_killed_fits_end_with_the_bits_of_a_fit_in_a_file(broker, tmp_path):
    folder, name = world(tmp_path, rows=600, task=TASK), f"f{uuid.uuid4().hex[:12]}"
    url, paths = f"{broker.url}/{name}", [f"{model}.yaml" for model in MODELS]
    for path, text in zip(paths, MODELS.values(), strict=True):
        (folder / path).write_text(text)
    run = ["run", "task.yaml", "--source", "people.csv", "--seed", 1, "--json"]
    assert murk(*run, "--log", LOG, folder=folder).status == 0
    expected = murk("fit", *paths, "--log", LOG, "--json", "--replay", folder=folder).json["models"]

    murk("topics", "task.yaml", "--log", url, "--simulated", "--estimates", folder=folder)
    with open_log(LOG.replace("file.db", str(folder / "file.db"))) as file:
        sent = [(partition, one.value) for partition in range(2) for one in file.read(partition, 0, 1_000)]
    with open_log(url, create=False) as log:
        for begin, end in ((0, 200), (200, 450)):
            with start("fit", *paths, "--log", url, "--follow", folder=folder) as child:
                log.append(sent[begin:end])
                while committed(url) <= begin:
                    assert child.poll() is None
                    time.sleep(0.05)
                child.kill()
            assert begin < committed(url) <= end
        log.append(sent[450:])
    found = murk("fit", *paths, "--log", url, "--json", folder=folder).json["models"]
    for each in (*found.values(), *expected.values()):
        del each["seconds"]
    assert found == expected

    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        topics = {topic for topic in admin.list_topics() if topic.startswith(f"murk-{name}")}
    own = {getattr(Names(name, model), kind) for model in MODELS for kind in ("states", "estimates")}
    assert topics == {*Names(name).all, Names(name).estimates} | own
    with open_log(url, create=False) as log:
        # The task's own learner has not begun, and none of its topics was written to.
        assert log.checkpoint(0) == (None, 0)
        assert log.estimate() is None
    with open_log(url, create=False, model="age") as log:
        assert b'"name":"age"' in (log.estimate() or b"")
