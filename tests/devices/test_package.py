"""The web device as a package: its content, its types, its size, and a program that uses it."""

import gzip
import json
import os
import re
import shutil
import subprocess
import tarfile

import pytest

from murk.demo.web import PAGE
from tests.devices import web
from tests.devices.pages import served

# Compressed, with sending, the ledger, all mechanisms, windows, rows, repeated answers, known columns and experiments.
LARGEST = {"scores.js": 28_850, "murk.js": 36_700, "card.js": 7_650, "node.js": 1_450, "ohttp.js": 9_000}
PROGRAM = """
import { connect, type Device, type Options, type Receipt, Refused } from "murk-device";
import { connect as scores } from "murk-device/scores";
import { type ConsentCard, ENGLISH } from "murk-device/card";
import { sqliteStore } from "murk-device/node";

interface Form { age: number; same_sex: string; third_child?: string }

export async function follow(device: Device, form: Form, hash: string | undefined): Promise<void> {
  device.addEventListener("change", (event: Event) => console.log(event.type));
  await device.release(form);
  await device.release<Form>(form, { key: hash });
  const { outcome, reason } = await device.hold<Form>(form);
  console.log(await device.arm(), outcome, reason, (await device.releaseHeld()).length, (await device.status()).next);
  await scores({ gateway: "https://gateway.test", task: "t", hash });
  document.createElement("murk-consent").addEventListener("murk-receipt", ({ detail }) => console.log(detail.outcome));
}

export async function answer(options: Options, card: ConsentCard): Promise<string> {
  const device = await connect({ ...options, relay: "https://relay.test", store: await sqliteStore("ledger.db") });
  card.device = scores(options);
  card.options = options;
  card.load = () => import("murk-device/scores");
  card.record = (): Form => ({ age: 28, same_sex: "yes" });
  card.texts = { ...ENGLISH, share: "Teilen" };
  try {
    const receipt: Receipt = await device.release({ age: 28, same_sex: "yes", third_child: null }, { key: "form-1" });
    return receipt.outcome === "released" ? receipt.delivery : receipt.reason;
  } catch (error) {
    return error instanceof Refused ? error.reason : "unknown";
  }
}
"""
TSC = web.FOLDER / "node_modules" / ".bin" / "tsc"
# What is no answer must not type-check.
WRONG = (
    'import { connect } from "murk-device"; await connect({ gateway: 1, task: "t" });',
    'import type { Device } from "murk-device"; export const f = (d: Device) => d.release({ a: [1] });',
    (
        'import type { Device } from "murk-device"; interface A { a: Date[] } '
        "export const f = (d: Device, a: A) => d.release(a);"
    ),
)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The package, unpacked where a program finds it."""
    folder = tmp_path_factory.mktemp("package")
    # The steps of `npm run prepack`, without a second build, which other tests would read half of.
    types = subprocess.run([TSC, "-p", "tsconfig.json"], cwd=web.built(), capture_output=True, text=True)
    assert types.returncode == 0, types.stdout
    command = ["npm", "pack", "--ignore-scripts", "--pack-destination", str(folder)]
    packed = subprocess.run(command, cwd=web.built(), capture_output=True, text=True)
    assert packed.returncode == 0, packed.stderr[-2000:]
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (folder / "node_modules").mkdir()
    os.rename(folder / "package", folder / "node_modules" / "murk-device")
    return folder


def checked(folder, text):
    (folder / "program.mts").write_text(text)
    options = [
        "--noEmit",
        "--strict",
        "--exactOptionalPropertyTypes",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--lib",
        "es2023,dom",
        "--types",
        "",
    ]
    return subprocess.run([TSC, *options, "program.mts"], cwd=folder, capture_output=True, text=True)


def test_content_and_size(package):
    unpacked = package / "node_modules" / "murk-device"
    manifest = json.loads((unpacked / "package.json").read_text())
    assert "dependencies" not in manifest
    assert {path.name for path in unpacked.iterdir()} == {"LICENSE", "README.md", "dist", "package.json"}
    for name, most in LARGEST.items():
        assert len(gzip.compress((unpacked / "dist" / name).read_bytes(), 9)) <= most
    assert not list((unpacked / "dist" / "types").glob("testing*"))
    # HPKE is loaded only where a page uses a relay, and comes with its licence.
    holders = {path.name for path in (unpacked / "dist").glob("*.js") if b"message/bhttp" in path.read_bytes()}
    assert holders == {"ohttp.js"}
    # Bundlers warn of modules of Node in a browser's, or fail.
    for path in (unpacked / "dist").glob("*.js"):
        assert path.name == "node.js" or not re.search(r"""(import|from) ?\(?["'][^./]""", path.read_text()), path.name
    assert "MIT License" in (unpacked / "dist" / "ohttp.js.LICENSE").read_text()


def test_another_build_gives_the_same_bytes(package, tmp_path):
    folder = tmp_path / "devices" / "web"
    folder.mkdir(parents=True)
    (tmp_path / "LICENSE").write_bytes((web.FOLDER.parents[1] / "LICENSE").read_bytes())
    for name in ("README.md", "build.mjs", "package.json", "tsconfig.json"):
        (folder / name).write_bytes((web.FOLDER / name).read_bytes())
    shutil.copytree(web.FOLDER / "src", folder / "src", copy_function=shutil.copyfile)
    (folder / "node_modules").symlink_to(web.FOLDER / "node_modules")
    # The steps of `npm run prepack`, which finds no `tsc` here.
    for command in ([web.node(), "build.mjs"], [TSC, "-p", "tsconfig.json"], ["npm", "pack", "--ignore-scripts"]):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (archive,) = package.glob("*.tgz")
    assert (folder / archive.name).read_bytes() == archive.read_bytes()


def test_the_lock_pins_every_package_and_names_no_host():
    text = (web.FOLDER / "package-lock.json").read_text()
    assert "://" not in text
    lock, manifest = json.loads(text), json.loads((web.FOLDER / "package.json").read_text())
    root, *packages = lock["packages"].values()
    assert (root["version"], root["devDependencies"]) == (manifest["version"], manifest["devDependencies"])
    assert packages
    assert [package for package in packages if not package["integrity"].startswith("sha512-")] == []


def test_the_demonstration_has_this_build():
    for name in ("card.js", "murk.js"):
        same = (PAGE / name).read_bytes() == (web.built() / "dist" / name).read_bytes()
        assert same, f"murk/demo/web/page/{name} is of other sources: run npm run demo in devices/web"


def test_a_program_type_checks_and_runs(package):
    fine = checked(package, PROGRAM)
    assert fine.returncode == 0, fine.stdout
    for wrong in WRONG:
        assert checked(package, wrong).returncode != 0
    (package / "run.mjs").write_text(
        'import { connect, Refused } from "murk-device";\n'
        'import "murk-device/scores";\nimport "murk-device/card";\nimport * as nodes from "murk-device/node";\n'
        "const rows = { update: async (_, change) => change(new Map())[0], close() {} };\n"
        'const away = async () => { throw new TypeError("no network"); };\n'
        'connect({ gateway: "https://gateway.test", task: "t", store: rows, fetch: away })'
        ".catch((error) => console.log(error instanceof Refused, error.reason));\n"
        'const options = { relay: "https://relay.test", keys: "AAAA", fetch: away };\n'
        'connect({ gateway: "https://gateway.test", task: "t", store: rows, ...options })'
        ".catch((error) => console.log(error instanceof Refused, error.reason));\n"
        'const failing = { exec() { throw new Error("disk"); } };\n'
        # Each module has a class of its own.
        "await nodes.sqliteStore(failing)"
        ".catch((error) => console.log(error instanceof Refused, error.reason, new Error() instanceof Refused));\n"
    )
    said = subprocess.run([web.node(), "run.mjs"], cwd=package, capture_output=True, text=True)
    assert sorted(said.stdout.splitlines()) == ["true keys", "true storage false", "true unavailable"], said.stderr


def test_the_examples_of_documents_run_in_node(package):
    examples = [
        re.findall(r"^```js\n(.*?)^```", (web.FOLDER.parents[1] / page).read_text(), re.MULTILINE | re.DOTALL)[0]
        for page in ("docs/guides/web.md", "devices/web/README.md")
    ]
    with served() as gateway:
        program = [f'const gateway = "{gateway.url}";', *examples, "console.log(receipt.outcome, receipt.delivery);"]
        (package / "examples.mjs").write_text("\n".join(program))
        command = [web.node_with_sqlite(), "--no-warnings", "examples.mjs"]
        said = subprocess.run(command, cwd=package, capture_output=True, text=True)
        assert said.stdout.split() == ["released", "sent"], said.stderr
        assert len(gateway.ids) == 1
