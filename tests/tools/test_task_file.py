"""The reference of task files is the one that the model gives, and its examples work."""

import re

from murk.task.task import Task
from tests.stream.task.test_hash import blocks_in
from tools.task_file import SECTIONS, page


def test_every_key_of_the_model_is_on_the_page() -> None:
    text = page()
    assert {block for _, _, block in SECTIONS} | {Task} == set(blocks_in(Task))
    for block in blocks_in(Task):
        for name, field in block.model_fields.items():
            key = field.alias or name
            assert (f"| `{key}` | " in text) is (key not in block.hidden)
            assert key in block.hidden or (field.description and field.description in text)


def test_the_examples_are_tasks() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
    assert [Task.parse(example).name for example in examples] == ["third-child", "hours-worked"]
