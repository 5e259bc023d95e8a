"""The about block of a task: who asks, what for, and whom people can turn to."""

from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from murk._internal.numbers import many
from murk.task.errors import shown, task_error
from murk.task.features import Words
from murk.task.fields import UNITS, Block, Duration, Text, format_duration

_ASCII: Final = range(0x21, 0x7F)


def _web_address(text: str) -> str:
    # Consent cards show the address as a link, so it must be that of a web page.
    if not (text.startswith("https://") and urlsplit(text).hostname and all(ord(each) in _ASCII for each in text)):
        raise task_error(f"{shown(text)} is not the address of a page; write it as in https://example.org/privacy")
    return text


class ArchiveBlock(Block):
    """How long an archive keeps releases that the log has deleted, and who may read and write it."""

    kept: Duration = Field(description="longest time for which a release is kept in it, as in `1825d`")
    readers: Words = Field(description="who may read it")
    writers: Words = Field(description="who may write to it, and so decides what is learned from it")

    @property
    def words(self) -> str:
        """What people are told about the archive.

        >>> ArchiveBlock.model_validate({"kept": "90d", "readers": "us", "writers": "a service"}).words.partition(". ")[
        ...     0
        ... ]
        'A copy of what was sent is kept in an archive for at most 90 days'
        """
        days, rest = divmod(self.kept, UNITS["d"])
        kept = format_duration(self.kept) if rest else many(days, "day")
        return (
            f"A copy of what was sent is kept in an archive for at most {kept}. Who may read it: {self.readers}. "
            f"Who may write to it: {self.writers}."
        )


class AboutBlock(Block):
    """Who asks, and what for; consent cards and the dossier show it, and any other words change the task's hash."""

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
    archive: ArchiveBlock | None = Field(
        default=None, description="an [archive](archives.md) of the releases; `null`: there is none"
    )
