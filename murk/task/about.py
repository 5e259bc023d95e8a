"""The about block of a task: who asks, what for, and whom people can turn to."""

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from murk.task.errors import shown, task_error
from murk.task.features import Words
from murk.task.fields import Block, Text

_ASCII: Final = range(0x21, 0x7F)


def _web_address(text: str) -> str:
    # Consent cards show the address as a link, so it must be that of a web page.
    if not (text.startswith("https://") and urlsplit(text).hostname and all(ord(each) in _ASCII for each in text)):
        raise task_error(f"{shown(text)} is not the address of a page; write it as in https://example.org/privacy")
    return text


class AboutBlock(Block):
    """Who asks, and what for: texts that consent cards and the dossier show, and that are part of the task's hash."""

    purpose: Words | None = Field(
        default=None, description="what the result is for, and on which legal basis people are asked"
    )
    controller: Words | None = Field(default=None, description="who is responsible for the processing")
    contact: Words | None = Field(
        default=None, description="where people can ask, complain or use their rights, such as an e-mail address"
    )
    notice: Annotated[Text, AfterValidator(_web_address)] | None = Field(
        default=None, description="address of the privacy notice, which begins with `https://`"
    )
