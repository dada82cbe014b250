"""What the OpenAPI document says beside the handlers: the words of a question as parameters, and how a question is refused."""

from dataclasses import dataclass

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Operation, Parameter, Reference, Schema
from litestar.openapi.spec.enums import OpenAPIType

from vramcast.asking.visitor import LONGEST_VALUE, SERVING_WORDS, TRAINING_WORDS, kind_of
from vramcast.web.problems import Problem

_PROBLEM = "application/problem+json"
_WHY = {
    400: "The question is wrong: the detail says what, the field where.",
    405: "The path takes another method.",
    413: "The body is larger than 2 MiB.",
    422: "No rule covers the question.",
    424: "Something is missing on the server, such as the network for a model that the catalogue lacks.",
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


def _parameters(words: frozenset[str], kind: str) -> list[Parameter | Reference]:
    return [
        Parameter(
            name=name, param_in="query", required=name == "model", schema=_schema(kind_of(name, kind)), allow_empty_value=False
        )
        for name in ("model", *sorted(words), "flags")
    ]


def _schema(plain: type) -> Schema:
    if plain is str:
        return Schema(type=OpenAPIType.STRING, max_length=LONGEST_VALUE)
    return Schema(type={int: OpenAPIType.INTEGER, float: OpenAPIType.NUMBER, bool: OpenAPIType.BOOLEAN}[plain])
