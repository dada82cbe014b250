"""What every page shares: the language of a visit, the frame around what is shown, and answers as HTML."""

from typing import Any
from urllib.parse import urlencode

from litestar import MediaType, Request, Response

from vramcast import __version__
from vramcast.language import LANGUAGES, Language, language, preferred
from vramcast.web.drawing import drawn

_PLACES = (
    ("serve", "nav-serve"),
    ("train", "nav-train"),
    ("plan", "nav-plan"),
    ("compare", "nav-compare"),
    ("paste", "nav-paste"),
    ("cards", "nav-cards"),
)


def language_of(request: Request[Any, Any, Any]) -> Language:
    """As the address says, else as the browser prefers."""
    return language(preferred(request.query_params.get("lang"), request.headers.get("accept-language")))


def page(
    template: str, request: Request[Any, Any, Any], here: str, shown: dict[str, Any], *, say: Language | None = None
) -> Response[str]:
    """A whole page around what is shown."""
    say = say or language_of(request)
    other = next(code for code in LANGUAGES if code != say.code)
    items = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    frame = {
        "say": say, "version": __version__, "places": _PLACES, "here": here, "heading": say("title"),
        "other_language": f"{request.url.path}?{urlencode([*items, ('lang', other)])}",
    }  # fmt: skip
    return html(template, {**shown, **frame})


def html(template: str, shown: dict[str, Any], *, status: int = 200) -> Response[str]:
    """The template with these values."""
    return Response(drawn(template, shown), media_type=MediaType.HTML, status_code=status)
