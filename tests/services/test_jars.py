"""The broker's jars come whole or not at all; with a Maven that only pretends."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.services.services import eventually

MAVEN = """#!/bin/sh
# The folder is the last but one argument: -DoutputDirectory=FOLDER
for argument; do case $argument in -DoutputDirectory=*) folder=${argument#*=};; esac; done
echo called >>"$CALLS"
mkdir -p "$folder" && touch "$folder/a.jar"
while [ -e "$HANG" ]; do sleep 0.02; done
[ -e "$FAIL" ] && { echo "no network"; exit 1; }
touch "$folder/kafka-server-4.1.0.jar"
"""


@pytest.fixture
def world(tmp_path):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"mvn": MAVEN, "java": "#!/bin/sh\n"}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    places = {name: str(tmp_path / name.lower()) for name in ("CALLS", "HANG", "FAIL")}
    return (
        os.environ | places | {"PATH": f"{programs}:/usr/bin:/bin", "MURK_KAFKA_HOME": str(tmp_path / "cache" / "jars")}
    )


def fetch(world):
    command = [sys.executable, "-m", "deploy.broker", "--fetch"]
    return subprocess.Popen(command, env=world, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ends(child):
    output, errors = child.communicate()
    return child.returncode, output, errors


def jars(world):
    return sorted(os.listdir(world["MURK_KAFKA_HOME"])) if os.path.isdir(world["MURK_KAFKA_HOME"]) else None


def calls(world):
    path = Path(world["CALLS"])
    return path.read_text().count("called") if path.exists() else 0


def test_two_at_once_copy_once(world):
    Path(world["HANG"]).touch()
    both = [fetch(world), fetch(world)]
    eventually(lambda: calls(world))
    time.sleep(0.3)
    assert jars(world) is None
    os.remove(world["HANG"])
    assert [ends(child) for child in both] == [(0, "", "")] * 2
    assert calls(world) == 1
    assert jars(world) == ["a.jar", "kafka-server-4.1.0.jar"]


def test_a_killed_one_leaves_nothing_in_the_way(world):
    Path(world["HANG"]).touch()
    with fetch(world) as first:
        eventually(lambda: calls(world))
        first.kill()
        second = fetch(world)
        # The first one's Maven lives on; the second waits for it and takes nothing from it.
        time.sleep(0.3)
        assert calls(world) == 1
        os.remove(world["HANG"])
    assert ends(second) == (0, "", "")
    assert calls(world) == 2
    assert jars(world) == ["a.jar", "kafka-server-4.1.0.jar"]


def test_what_maven_said_is_shown(world):
    Path(world["FAIL"]).touch()
    status, _, errors = ends(fetch(world))
    assert status == 1
    assert errors.startswith("Error: Maven could not copy Kafka's jars")
    assert "no network" in errors
    assert jars(world) is None
