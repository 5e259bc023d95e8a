"""The broker's jars come whole or not at all; with a Maven that only pretends."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.broker.jars import CLASSES, loaded, tidy
from deploy.broker.jars import fetch as jars_of_broker
from deploy.broker.server import JVM
from tests.services.services import eventually, missing, require_kafka

MAVEN = """#!/bin/sh
# The folder is the last but one argument: -DoutputDirectory=FOLDER
for argument; do case $argument in -DoutputDirectory=*) folder=${argument#*=};; esac; done
echo called >>"$CALLS"
mkdir -p "$folder" && touch "$folder/a.jar"
while [ -e "$HANG" ]; do sleep 0.02; done
[ -e "$FAIL" ] && { echo "no network"; exit 1; }
touch "$folder/kafka-server-4.1.0.jar"
"""

# What the real ones leave behind unless they are asked to put it elsewhere: Maven its repository, every Java machine
# its counters, and Kafka's libraries what they unpack.
LITTERING_MAVEN = """#!/bin/sh
repository=$HOME/.m2/repository
for argument; do case $argument in
  -DoutputDirectory=*) folder=${argument#*=};;
  -Dmaven.repo.local=*) repository=${argument#*=};;
esac; done
java $MAVEN_OPTS
mkdir -p "$folder" "$repository/org" && touch "$folder/kafka-server-4.1.0.jar" "$repository/org/a.jar"
"""
LITTERING_JAVA = """#!/bin/sh
temporary=$TMPDIR
perf=yes
for argument; do case $argument in
  -Djava.io.tmpdir=*) temporary=${argument#*=};;
  -XX:-UsePerfData) perf=no;;
esac; config=$argument; done
[ $perf = no ] || mkdir -p "$TMPDIR/hsperfdata"
touch "$temporary/libsnappy.so"
case $* in
  *StorageTool*) mkdir "$(sed -n 's/^log.dirs=//p' "$config")";;
  *kafka.Kafka*) echo Kafka Server started; exec sleep 600;;
esac
"""
ROOT = Path(__file__).parents[2]


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


def test_classes_come_from_where_they_are_kept(tmp_path):
    require_kafka()
    libs = jars_of_broker()
    if not (libs / CLASSES).is_file():
        missing(f"{libs / CLASSES} is missing: run .ci/services")
    assert loaded(tmp_path) == []
    for options, source in ((loaded(libs), "shared objects file (top)"), ([], "file:")):
        # Without settings it says how it is called, and ends.
        command = ["java", *JVM, *options, *tidy(tmp_path), "-Xlog:class+load", "-cp", f"{libs}/*", "kafka.Kafka"]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        assert f"] kafka.Kafka source: {source}" in said


def test_make_kafka_writes_in_its_folder_alone(tmp_path):
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    for folder in (checkout, programs, tmp_path / "home", tmp_path / "tmp"):
        folder.mkdir()
    shutil.copytree(ROOT / "deploy" / "broker", checkout / "deploy" / "broker")
    for name in ("Makefile", "pyproject.toml", "deploy/__init__.py"):
        shutil.copy(ROOT / name, checkout / name)
    python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
    for name, text in {"mvn": LITTERING_MAVEN, "java": LITTERING_JAVA, "python": python}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "installed").touch()
    world = {
        "PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = ["make", "kafka", f"BIN={programs}", f"STAMP={tmp_path}/installed"]
    with subprocess.Popen(
        command, cwd=checkout, env=world, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as made:
        said = []
        while "Ctrl-C" not in "".join(said) and (line := made.stdout.readline()):
            said.append(line)
        made.send_signal(signal.SIGTERM)
    assert "Kafka listens on" in "".join(said), said
    assert sorted(os.listdir(checkout / ".kafka")) == ["data", "kafka-4.1.0", "kafka-4.1.0.lock"]
    assert sorted(os.listdir(checkout)) == [".kafka", "Makefile", "deploy", "pyproject.toml"]
    assert os.listdir(tmp_path / "home") == os.listdir(tmp_path / "tmp") == []
