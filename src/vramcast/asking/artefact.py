"""What a model's name says beside the model: the engine that loads such files, and the type of the file.

llama3.1:8b                              Ollama's tag: Ollama, Q4_K_M unless the tag names a type
bartowski/Llama-3.3-70B-Instruct-GGUF    llama.cpp, Q4_K_M unless ``:TYPE`` follows (what llama.cpp's -hf takes)
gemma-3-27b-it-Q5_K_M.gguf               llama.cpp, by the file where it is at hand, else by its name
https://huggingface.co/Qwen/Qwen3-8B     the id
"""

import re

import msgspec

from vramcast.ledger import Assumption
from vramcast.untrusted import existing_path

USUAL_TYPE = "Q4_K_M"
_TYPE = r"(?:u?d[-_])?(?:i?q\d(?:_[a-z0-9]+)*|tq\d_\d|fp16|f16|bf16|f32|mxfp4(?:_moe)?)"
_ADDRESS = re.compile(r"^(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.cn/models)/", re.IGNORECASE)
_TAG = re.compile(r"(?:ollama\.com/library/|ollama/|library/)?(?P<name>[a-z0-9][\w.-]*):(?P<tag>[\w.-]+)")
_OLLAMA = re.compile(r"^(?:https?://)?(?:ollama\.com/)?(?:library/)?", re.IGNORECASE)
_REPOSITORY = re.compile(rf"(?P<name>.+?-gguf)(?::(?P<type>{_TYPE}|latest))?", re.IGNORECASE)
_ONE_TYPE = re.compile(rf"[-_.]({_TYPE})-gguf$", re.IGNORECASE)  # google/gemma-3-27b-it-qat-q4_0-gguf
_FILE = re.compile(rf"(?P<name>.+?)[-.](?P<type>{_TYPE})(?:-\d+-of-\d+)?\.gguf", re.IGNORECASE)
# Families that Ollama's library serves in another type, whatever the tag: their makers publish 4-bit experts.
_OWN_TYPE = ("gpt-oss",)


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """The model's name, and what else its text said: ``engine`` and ``quant`` are None where it said nothing."""

    model: str
    engine: str | None = None
    quant: str | None = None
    because: str = ""

    def assumed(self) -> tuple[Assumption, ...]:
        """What was taken from the name, for the answer to list."""
        taken = [Assumption("engine", self.engine, self.because)] if self.engine else []
        return (*taken, Assumption("quant", self.quant, self.because)) if self.quant else tuple(taken)


def artefact_of(text: str) -> Artefact:
    """What the text names. A file or folder that is there is left as it stands."""
    plain = _ADDRESS.sub("", text.strip()).removesuffix("/").removesuffix("/tree/main").removesuffix("/resolve/main")
    if plain.lower().endswith(".gguf"):
        return _file(plain)
    if existing_path(text):
        return Artefact(model=text)
    if match := _REPOSITORY.fullmatch(plain):
        return _repository(match)
    if match := _TAG.fullmatch(_OLLAMA.sub("", plain) if "/" in plain else plain):
        return _tag(match)
    return Artefact(model=plain)


def names_no_type(model: str) -> bool:
    """Whether a GGUF file of this model could be of any type: no file or folder that is there, no maker's own 4-bit weights."""
    return model != "-" and not existing_path(model) and not any(own in model.lower() for own in _OWN_TYPE)


def _file(text: str) -> Artefact:
    match = None if existing_path(text) or "/" in text else _FILE.fullmatch(text)
    if match is None:
        return Artefact(model=text, engine="llama_cpp", because="a GGUF file is what llama.cpp loads")
    because = f"there is no file {text}: its name was read"
    return Artefact(model=match["name"], engine="llama_cpp", quant=gguf_type(match["type"]), because=because)


def _repository(match: re.Match[str]) -> Artefact:
    stated = match["type"] if match["type"] and match["type"].lower() != "latest" else None
    said = f"the name ends in :{stated}" if stated else f"a GGUF repository: llama.cpp takes {USUAL_TYPE} where none is named"
    if stated is None and (alone := _ONE_TYPE.search(match["name"])):
        stated, said = alone[1], f"the repository is named after its one type, {alone[1]}"
    return Artefact(model=match["name"], engine="llama_cpp", quant=gguf_type(stated or USUAL_TYPE), because=said)


def _tag(match: re.Match[str]) -> Artefact:
    name, tag = match["name"], match["tag"].lower()
    typed = re.search(rf"(?:^|-)({_TYPE})$", tag, re.IGNORECASE)
    size = tag[: typed.start()] if typed else "" if tag == "latest" else tag
    model = f"{name}:{size}" if size else name
    if name.startswith(_OWN_TYPE):
        return Artefact(model=model, engine="ollama", because="an Ollama tag; its file keeps the maker's 4-bit experts")
    said = f"the tag ends in {typed[1]}" if typed else f"an Ollama tag that names no type is {USUAL_TYPE}"
    return Artefact(model=model, engine="ollama", quant=gguf_type(typed[1] if typed else USUAL_TYPE), because=said)


def usual_mix(text: str) -> str:
    """The usual mix of the bits of one of Unsloth's own (UD-Q4_K_XL), which llama-quantize does not make; "" for other types."""
    if not re.match(r"ud[-_]", text, re.IGNORECASE) and not text.lower().endswith("_k_xl"):
        return ""
    from vramcast.serving.engines.llama_cpp.file_types import BASE

    return gguf_type(text) if gguf_type(text) in BASE else ""


def gguf_type(text: str) -> str:
    """As llama.cpp spells it: q4_k_m is Q4_K_M, fp16 is F16; Unsloth's UD-Q4_K_XL is Q4_K_M; 2, 6 and 8 bits have no M mix."""
    plain = re.sub(r"^u?d[-_]", "", text.lower()).replace("-", "_")
    plain = plain.replace("q8_k_xl", "q8_0").replace("q6_k_xl", "q6_k").replace("q2_k_xl", "q2_k").replace("_k_xl", "_k_m")
    return {"fp16": "F16"}.get(plain, plain.upper())


def names_one(name: str) -> bool:
    """Whether a name without its maker means one model: a repository's whole name, or what its maker gave one size alone.

    True: bloom, command-r-plus, Mistral-Nemo; False: a family (mixtral, gpt-oss), of which the maker published several.
    """
    from vramcast.models.reading import known_ids, read_model
    from vramcast.models.reading.known import best_known_first

    word = re.compile(rf"(?:^|-){re.escape(name.lower())}(?:-|$)")
    found = [one for one in best_known_first(known_ids()) if word.search(one.lower().rpartition("/")[2])]
    if any(one.lower().rpartition("/")[2] == name.lower() for one in found):
        return True
    own = [one for one in found if one.partition("/")[0] == found[0].partition("/")[0]]
    sizes = set[int]()
    for one in own:
        sizes.add(read_model(one, offline=True).parameters)
        if len(sizes) > 1:
            return False
    return bool(sizes)
