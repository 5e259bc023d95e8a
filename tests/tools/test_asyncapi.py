"""The AsyncAPI document: references lead somewhere, and messages of a log fit the schemas that it names."""

import json
from pathlib import Path

import jsonschema
import pytest

from tools.wire.asyncapi import document
from tools.wire.examples import examples

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCUMENT = document()
EXAMPLES = {kind.replace(" ", "-"): example for kind, example in examples(2**20).items()}
MESSAGES = DOCUMENT["components"]["messages"]


def references(value):
    if isinstance(value, dict):
        yield from [value["$ref"]] if "$ref" in value else []
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_reference_leads_somewhere():
    for reference in references(DOCUMENT):
        if reference.startswith("#/"):
            place = DOCUMENT
            for step in reference[2:].split("/"):
                place = place[step]
        else:
            assert (DEPLOY / reference).is_file(), reference


def test_each_schema_is_of_a_message_and_each_message_of_a_channel():
    named = {path.name.rpartition("-")[0] for path in (DEPLOY / "schemas").iterdir()}
    channels = [kind for channel in DOCUMENT["channels"].values() for kind in channel["messages"]]
    assert sorted(channels) == sorted(named) == sorted(MESSAGES)
    assert {each["channel"]["$ref"].rpartition("/")[2] for each in DOCUMENT["operations"].values()} == set(
        DOCUMENT["channels"]
    )


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if "payload" in MESSAGES[kind]])
def test_messages_fit_the_schemas_that_the_document_names(kind):
    message = MESSAGES[kind]
    schema = json.loads((DEPLOY / message["payload"]["schema"]["$ref"]).read_text())
    validator = jsonschema.Draft202012Validator(schema)
    content = json.loads(EXAMPLES[kind].value)
    validator.validate(content)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**content, "person": "ann"})
