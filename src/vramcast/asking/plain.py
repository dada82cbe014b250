"""A question in a person's words: ``llama 3.1 8b on a 4090``, ``can I fine-tune qwen3 8b on 2x 3090``, 用4090能跑Qwen3-8B吗.

One short line that names a model, and mostly a card, becomes the words of ``fit``, ``serve`` or ``train``. Who names neither an
engine nor a type nor a method asks which of them do: the page of every way. Who asks how many users, how long a context or how
fast gets that answer. What is left over has to be words of this file, or the line is no such question: nothing that was said is
dropped. With an engine on a card, where the line names no context, the longest that fits is asked for.
"""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re
from collections.abc import Iterator

import msgspec

_LONGEST, _WORDS_OF_A_NAME = 200, 4
_NUMBERS = {
    "a": 1, "an": 1, "my": 1, "the": 1, "one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "eight": 8,
    "一": 1, "单": 1, "两": 2, "二": 2, "双": 2, "三": 3, "四": 4, "八": 8,
}  # fmt: skip
_TRAINS = r"fine[- ]?tun(?:e|ing)|train(?:ing)?|pre-?train(?:ing)?|grpo|dpo|q?lora|微调|训练|全参"
_RUNS = r"run(?:ning)?|serv(?:e|ing)|load|host|deploy|use|fits?|inference"
# What stands before, between and behind the names, and says nothing that a flag could.
_ASKING = re.compile(
    rf"""^(?:
    (?:can|could|may|will|would|does|do|is|it|i|we|you|able|possible|to|how|much|many|what|which|vram|gpu|gpus|memory|need|needs|
    needed|needing|require[sd]?|for|of|enough|ok|please|hello|hi|want|wanna|try|trying|the|my|model|llm|inside|hold|handle|get|
    i'm|or|there|any|best|good|better|buy|rent|should|hardware|only|just|have|has|got|i've|this|that|still|even|now|
    {_RUNS}|{_TRAINS}|full|and|with|using|on|in|at|into|by|via|under|from|a|an|card|cards|locally|local|me|if|take|takes)\b
    |运行|部署|推理|微调|训练|全参|跑|装|请问|我|想|能不能|能否|可不可以|可以|能|够不够|够|吗|呢|么|需要|需|要|多少|显存|内存|才|用|使用|在|上|下|的|张|块|卡|显卡|得动|不|动|得|
    了|是|否|单机|本地|一|单|大|模型|，|。|？|[?!.,:;'"()\s]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_SAID = (
    ("context", re.compile(
        r"\b(\d+(?:\.\d+)?\s?[km]|\d{4,7})\s*(?:-?\s?tokens?)?\s*(?:of\s+)?(?:context|ctx|窗口)(?:\s+(?:length|window))?", re.I)),
    ("context", re.compile(r"(?:context|ctx|上下文|长度)\s*(?:length|window|of|=|为|是)*\s*(\d+(?:\.\d+)?\s?[km]?)\b", re.I)),
    ("context", re.compile(r"(\d+(?:\.\d+)?\s?[km])\s*(?:的)?上下文", re.I)),
    ("context", re.compile(r"\b(?:with|at)\s+(\d+(?:\.\d+)?[km])\b(?!\s*(?:users|people))", re.I)),
    ("concurrency", re.compile(r"(?:for )?(\d+)\s*(?:concurrent )?(?:users?|people|requests?|clients?|并发|个?用户|人)", re.I)),
    ("batch", re.compile(r"(?:micro[- ])?batch(?:[- ]size)?\s*(?:of|=)?\s*(\d+)", re.I)),
    ("engine", re.compile(r"\b(vllm|sglang|ollama|llama\.?cpp|tensorrt-llm|trt-llm|transformers)\b", re.I)),
    ("framework", re.compile(r"\b(unsloth|axolotl|llama[- ]factory|torchtune|torchtitan|megatron(?!-)|litgpt)\b", re.I)),
    ("method", re.compile(r"(?<![\w-])(qlora|lora|grpo|dpo|全参(?:数)?|full(?=[- ](?:fine|param|train)))(?![\w-])", re.I)),
    ("quant", re.compile(r"(?<![\w.-])((?:i?q\d(?:_[a-z0-9]+)*)|fp8|awq|gptq|nf4|int[48]|[48][- ]?bits?)(?![\w.-])", re.I)),
)  # fmt: skip
# What is asked for beside "does it fit", and the words that ask for it; the first that is found.
_WANTED = (
    ("users", re.compile(
        r"how many (?:concurrent |parallel |simultaneous )?(?:users|people|requests|clients|sessions)|"
        r"max(?:imum)? (?:number of )?(?:concurrent )?(?:users|concurrency|requests)|"
        r"(?:支持|能带|服务)?多少(?:个)?(?:用户|并发|人)", re.I)),
    ("longest", re.compile(
        r"(?:max(?:imum)?|longest|largest|biggest|how (?:long|much|big)(?: of)?(?: an?)?)\s+"
        r"(?:context|ctx)(?:\s+(?:length|window|size))?|"
        r"最大上下文|最长上下文|上下文最(?:大|长)", re.I)),
    ("speed", re.compile(
        r"(?:is |are )?(?:\d[\d.]*\s*)?(?:tokens?|tok|t)\s*(?:/|per |a )\s*(?:s|sec|second)\b(?: (?:normal|good|ok|slow|right))?|"
        r"how (?:fast|slow)(?: (?:is|does|will|can))?|tokens? speed|\bspeed\b|多快|速度", re.I)),
    ("quant", re.compile(r"(?:which|what|best)\s+(?:quant\w*|precision|gguf)|哪(?:个|种)量化|什么量化", re.I)),
)  # fmt: skip
_USUAL_CONTEXT = "4096"  # of a user, where none was said
_METHODS = {"全参": "full", "全参数": "full"}


_BEFORE = re.compile(rf"(?<![A-Za-z0-9.])(\d{{1,4}}|{'|'.join(_NUMBERS)})\s*(?:[x×*]|张|块|卡|个)?\s*$", re.I)
_AFTER = re.compile(r"\s*[x×*]\s*(\d{1,4})\b")
_ON = re.compile(r"(.+?)\s+on\s+(?:(?:an?|the|my)\s+)?(.+)", re.I)
_PLURAL = re.compile(r"(?<=\d)s$")
_GLUED = re.compile(r"(?<![A-Za-z0-9.-])(\d{1,4})[x×*](?=[A-Za-z0-9])")


class Plain(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked: the command, the model's name, and flags as they are typed."""

    command: str  # fit, serve or train
    model: str
    flags: tuple[str, ...]


def plain_question(text: str) -> Plain | None:
    """The question in one line of a person's words, or None where it is none."""
    line = " ".join(_GLUED.sub(r"\1 x ", text.replace("，", " ")).split())
    if not line or len(line) > _LONGEST or line.startswith("-") or " --" in line:
        return None
    wanted, left = _wanted(line)
    left, said = _settings(left)
    card, count, left = _card(left)
    if card and _card(left)[0]:  # a card or another: one at a time
        return None
    model = _model(left, surely=bool(card))
    if model is None:
        return None
    if (beside := _ON.fullmatch(model)) and _is_model(beside[1]):
        model, card = beside[1], f"{card} {beside[2]}".strip()  # a card that nobody knows: --gpu refuses it, with the nearest
    trains = bool(re.search(_TRAINS, line, re.I)) or "method" in said or "framework" in said
    flags = [f"--gpu={card}x{count}" if count > 1 else f"--gpu={card}"] if card else []
    if _is_open(model, said, wanted, card):
        return Plain(command="fit", model=model, flags=(*flags, *_flags_of_fit(line, said, trains=trains)))
    if card and not trains and wanted not in ("users", "longest"):
        said.setdefault("context", "auto")
    flags += _training_flags(said) if trains else _serving_flags(said, card)
    return Plain(
        command="train" if trains else "serve", model=model, flags=(*flags, *_flags_wanted(wanted, said, card, trains=trains))
    )


def _wanted(line: str) -> tuple[str, str]:
    """What is asked for beside the verdict, "" for nothing, and the line without the words that ask for it."""
    for name, pattern in _WANTED:
        if found := pattern.search(line):
            return name, f"{line[: found.start()]} {line[found.end() :]}"
    return "", line


def _is_open(model: str, said: dict[str, str], wanted: str, card: str) -> bool:
    """Whether the line leaves open how the model is run or trained, and asks for nothing that one way alone has."""
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.names import take_apart

    if said.keys() - {"context", "concurrency"} or (card and wanted in ("users", "longest", "speed")):
        return False
    return not artefact_of(model).engine and not take_apart(model).ending


def _flags_of_fit(line: str, said: dict[str, str], *, trains: bool) -> list[str]:
    runs = re.search(rf"\b(?:{_RUNS})\b|运行|部署|推理|跑", line, re.I)
    only = [] if trains == bool(runs) else ["--only=train"] if trains else ["--only=run"]
    context = [f"--context={said['context']}"] if "context" in said and not (only and trains) else []
    return [*context, *([f"--users={said['concurrency']}"] if "concurrency" in said else []), *only]


def _flags_wanted(wanted: str, said: dict[str, str], card: str, *, trains: bool) -> list[str]:
    """The flags of serve that answer how many, how long or how fast."""
    if trains or not card:
        return []
    if wanted == "users":
        return ["--best=users", *([] if "context" in said else [f"--context={_USUAL_CONTEXT}"])]
    return {"longest": ["--best=context"], "speed": ["--prompt=1024", "--output=256"]}.get(wanted, [])


def _settings(line: str) -> tuple[str, dict[str, str]]:
    """The line without what it says of context, users, engine and types, and what that was."""
    said: dict[str, str] = {}
    for name, pattern in _SAID:
        found = pattern.search(line) if name not in said else None
        if found and not (name == "quant" and line[found.end() : found.end() + 1] == ":"):
            said[name] = re.sub(r"\s", "", found[1])
            line = f"{line[: found.start()]} {line[found.end() :]}"
    return " ".join(line.split()), said


def _card(line: str) -> tuple[str, int, str]:
    """The longest run of words that names a card, how many of it, and the line without them; "" where none does."""
    for start, end in _runs(line):
        name = line[start:end].strip()
        if not _is_card(name):
            continue
        before, after = _BEFORE.search(line[:start]), _AFTER.match(line[end:])
        count = (before[1] if before else after[1] if after and after[1] else "1").lower()
        rest = f"{line[: before.start() if before else start]} {line[end + (after.end() if after else 0) :]}"
        return _PLURAL.sub("", name), _NUMBERS.get(count) or int(count), " ".join(rest.split())
    return "", 1, line


def _runs(line: str) -> Iterator[tuple[int, int]]:
    """Runs of up to five words, the longest first, from the end of the line to its beginning."""
    words = [(m.start(), m.end()) for m in re.finditer(r"[A-Za-z0-9.+_-]+", line)]
    words = [(start, end - 1 if line[end - 1] in ".?" else end) for start, end in words]
    for size in range(min(5, len(words)), 0, -1):
        for first in range(len(words) - size, -1, -1):
            yield words[first][0], words[first + size - 1][1]


def _is_card(name: str) -> bool:
    from vramcast.asking.asked import named_cards
    from vramcast.errors import VramcastError

    if re.fullmatch(r"[\d.]{1,3}[bkm]?|\d{1,3}|local|any|[x×*]|.*\d[x×*]", name, re.I) or _ASKING.fullmatch(name):
        return False
    try:
        return named_cards(_PLURAL.sub("", name)).gpu is not None
    except VramcastError:
        return False


def _model(left: str, *, surely: bool) -> str | None:
    """What is left between the words of asking, where it names a model; ``surely``: with a card beside it a name is enough."""
    line = left
    while (found := _ASKING.match(line)) and found.end():
        line = line[found.end() :].lstrip()
    while line and (tail := _last_word(line)):
        line = line[: -len(tail)].rstrip()
    named = surely and len(line.split()) <= _WORDS_OF_A_NAME and re.search(r"[a-z]\S*\s?\d", line, re.I)
    return line if line and (named or _is_model(line)) else None


def _last_word(line: str) -> str:
    """The last word where it is one of asking."""
    for size in range(1, min(14, len(line)) + 1):
        tail, before = line[-size:], line[: len(line) - size][-1:]
        whole = not (re.match(r"[A-Za-z0-9]", tail) and re.match(r"[A-Za-z0-9.-]", before))
        found = _ASKING.match(tail)
        if whole and found and found.end() == len(tail):
            return tail
    return ""


def _is_model(name: str) -> bool:
    from vramcast.asking.artefact import artefact_of
    from vramcast.models.reading import load
    from vramcast.models.reading.by_name import by_name
    from vramcast.models.reading.known import in_english, short_name
    from vramcast.models.reading.typed import current

    plain = artefact_of(name).model
    english = in_english(plain)
    try:
        return bool(load(plain) or short_name(english) or by_name(english) or current(english))
    except ValueError:
        return True  # a name with a slip or of several shapes: the command says which ones there are


def _serving_flags(said: dict[str, str], card: str) -> list[str]:
    flags = [f"--{name}={said[name]}" for name in ("context", "concurrency", "engine") if name in said]
    if quant := said.get("quant"):
        flags.append(f"--quant={_type_of(quant.lower(), said.get('engine', ''), card)}")
    return flags


def _type_of(quant: str, engine: str, card: str) -> str:
    """The scheme that a word means under an engine: four bits are a GGUF file's under llama.cpp, AWQ's elsewhere."""
    files = engine.lower().startswith(("llama", "ollama")) or re.match(r"m\d|apple|mac", card, re.I)
    if re.match(r"4|int4", quant):
        return "Q4_K_M" if files else "awq"
    if re.match(r"8", quant):
        return "Q8_0" if files else "fp8"
    return quant.upper() if re.match(r"i?q\d", quant) else quant


def _training_flags(said: dict[str, str]) -> list[str]:
    method = _METHODS.get(said.get("method", ""), said.get("method", "")).lower()
    if said.get("quant", "").lower() in ("4bit", "4-bit", "4bits", "4-bits", "nf4", "int4") and method in ("", "lora"):
        method = "qlora"
    flags = [f"--method={method}"] if method else []
    flags += [f"--seq={said['context']}"] if "context" in said else []
    flags += [f"--micro-batch={said['batch']}"] if "batch" in said else []
    return flags + (
        [f"--framework={said['framework'].lower().replace(' ', '_').replace('-', '_')}"] if "framework" in said else []
    )
