"""What the OpenAPI document says beside the handlers: the words of a question as parameters, and how a question is refused."""

from dataclasses import dataclass

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, Parameter, Reference, RequestBody, Schema
from litestar.openapi.spec.enums import OpenAPIFormat, OpenAPIType

from vramcast.asking.visitor import LONGEST_VALUE, PLAN_WORDS, SERVING_WORDS, TRAINING_WORDS, kind_of
from vramcast.web.problems import Problem

_PROBLEM = "application/problem+json"
_WHY = {
    400: "The question is wrong: the detail says what, the field where.",
    405: "The path takes another method.",
    413: "The body is larger than 2 MiB, a file larger than 32 MiB.",
    422: "No rule covers the question.",
    424: "Something is missing on the server, such as the network for a model that the catalogue lacks.",
    503: "Other visitors' plans and files are being read: ask again in a few seconds.",
}
REFUSALS = {
    status: ResponseSpec(data_container=Problem, generate_examples=False, media_type=_PROBLEM, description=why)
    for status, why in _WHY.items()
}


@dataclass
class ServeOperation(Operation):
    """``serve`` with its words as parameters."""

    def __post_init__(self) -> None:
        """The words beside what the handler declares."""
        self.parameters = _parameters(SERVING_WORDS, "serve")


@dataclass
class TrainOperation(Operation):
    """``train`` with its words as parameters."""

    def __post_init__(self) -> None:
        """The words beside what the handler declares."""
        self.parameters = _parameters(TRAINING_WORDS, "train")


@dataclass
class PlanServeOperation(Operation):
    """``plan serve`` with its words as parameters."""

    def __post_init__(self) -> None:
        """The words beside what the handler declares."""
        self.parameters = _parameters(PLAN_WORDS["serve"], "plan", flags=())


@dataclass
class PlanTrainOperation(Operation):
    """``plan train`` with its words as parameters."""

    def __post_init__(self) -> None:
        """The words beside what the handler declares."""
        self.parameters = _parameters(PLAN_WORDS["train"], "plan", flags=())


@dataclass
class FileOperation(Operation):
    """A file as the body, its name and the card beside it."""

    def __post_init__(self) -> None:
        """The body beside what the handler declares."""
        held = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING, format=OpenAPIFormat.BINARY))
        self.request_body = RequestBody(content={"application/octet-stream": held}, required=True)


def _parameters(words: frozenset[str], kind: str, flags: tuple[str, ...] = ("flags",)) -> list[Parameter | Reference]:
    return [
        Parameter(
            name=name, param_in="query", required=name == "model", schema=_schema(kind_of(name, kind)), allow_empty_value=False
        )
        for name in ("model", *sorted(words), *flags)
    ]


def _schema(plain: type) -> Schema:
    if plain is str:
        return Schema(type=OpenAPIType.STRING, max_length=LONGEST_VALUE)
    return Schema(type={int: OpenAPIType.INTEGER, float: OpenAPIType.NUMBER, bool: OpenAPIType.BOOLEAN}[plain])
