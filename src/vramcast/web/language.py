"""The page's words by language: Fluent messages in ``locales/``; a test holds that no language lacks one."""

from functools import cache
from pathlib import Path
from typing import Any

from fluent.runtime import FluentBundle, FluentResource

LANGUAGES = {"en": "English", "zh": "中文"}
FOLDER = Path(__file__).parent / "locales"


class Language:
    """One language: ``say("headline", likely=..., margin=...)`` is the message with its values."""

    def __init__(self, code: str) -> None:
        self.code = code
        self._bundle = FluentBundle([code, "en"], use_isolating=False)
        for name in dict.fromkeys(("en", code)):
            text = (FOLDER / f"{name}.ftl").read_text("utf-8")
            self._bundle.add_resource(FluentResource(text), allow_overrides=True)

    def __call__(self, key: str, **values: Any) -> str:
        """The message of that key. Raises KeyError for a key that no catalogue has: a fault of the page, caught by its tests."""
        message = self._bundle.get_message(key)
        if message.value is None:
            raise KeyError(key)
        return str(self._bundle.format_pattern(message.value, values)[0])

    def word(self, kind: str, name: str) -> str:
        """A word of the answer, such as a term of the ledger or what binds, as the catalogue has it; else as it stands."""
        key = f"{kind}-{name.replace('_', '-')}"
        return self(key) if self._bundle.has_message(key) else name.replace("_", " ")


@cache
def language(code: str) -> Language:
    """That language; English for one that is not there."""
    return Language(code if code in LANGUAGES else "en")


def preferred(asked: str | None, header: str | None) -> str:
    """The language of a visit: as asked, else the first of Accept-Language that is there, else English."""
    if asked in LANGUAGES:
        return asked
    for part in (header or "")[:200].split(","):
        code = part.split(";")[0].strip().lower()[:2]
        if code in LANGUAGES:
            return code
    return "en"
