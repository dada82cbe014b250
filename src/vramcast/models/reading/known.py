"""How well known a model is, and which one a family's short name means today.

A family with its generation means the size that Ollama's library (https://ollama.com/library) serves without a tag, instruct
where there is one: ``llama3.1`` is the 8B. A family alone means its newest generation here in a size that one card holds, where
there is one. Makers are organisations that publish their own models; uploads of others are never offered before theirs.
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import cache

# Short name to the id it means. Spelt as ``plain`` leaves it: lower case, no separators.
SHORT = {
    "qwen": "Qwen/Qwen3.5-9B",
    "qwen3.5": "Qwen/Qwen3.5-9B",
    "qwen3.6": "Qwen/Qwen3.6-35B-A3B",
    "qwen3": "Qwen/Qwen3-8B",
    "qwen2.5": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2": "Qwen/Qwen2-7B-Instruct",
    "qwen1.5": "Qwen/Qwen1.5-4B-Chat",
    "qwen3coder": "Qwen/Qwen3-Coder-30B-A3B-Instruct",
    "qwen3vl": "Qwen/Qwen3-VL-8B-Instruct",
    "qwen2.5vl": "Qwen/Qwen2.5-VL-7B-Instruct",
    "qwq": "Qwen/QwQ-32B",
    "qwen3next": "Qwen/Qwen3-Next-80B-A3B-Instruct",
    "qwen3moe": "Qwen/Qwen3-30B-A3B",
    "llama": "meta-llama/Llama-3.1-8B-Instruct",
    "llama4": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama4scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama4maverick": "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "llama3.3": "meta-llama/Llama-3.3-70B-Instruct",
    "llama3.2": "meta-llama/Llama-3.2-3B-Instruct",
    "llama3.1": "meta-llama/Llama-3.1-8B-Instruct",
    "llama3": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama2": "meta-llama/Llama-2-7b-chat-hf",
    "codellama": "codellama/CodeLlama-7b-hf",
    "mistral": "mistralai/Mistral-7B-Instruct-v0.3",
    "mixtral": "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "mistralnemo": "mistralai/Mistral-Nemo-Instruct-2407",
    "mistralsmall": "mistralai/Mistral-Small-24B-Instruct-2501",
    "gemma": "google/gemma-4-12B-it",
    "gemma4": "google/gemma-4-12B-it",
    "gemma3": "google/gemma-3-4b-it",
    "gemma2": "google/gemma-2-9b-it",
    "gemma3n": "google/gemma-3n-E4B-it",
    "phi": "microsoft/phi-4",
    "phi4": "microsoft/phi-4",
    "phi3": "microsoft/Phi-3-mini-4k-instruct",
    "phi3.5": "microsoft/Phi-3.5-mini-instruct",
    "phi4mini": "microsoft/Phi-4-mini-instruct",
    "deepseek": "deepseek-ai/DeepSeek-V4-Flash",
    "deepseekv4": "deepseek-ai/DeepSeek-V4-Flash",
    "deepseekv3": "deepseek-ai/DeepSeek-V3",
    "deepseekr1": "deepseek-ai/DeepSeek-R1",
    "deepseekcoderv2": "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
    "gptoss": "openai/gpt-oss-20b",
    "kimi": "moonshotai/Kimi-K2.6",
    "kimik2": "moonshotai/Kimi-K2-Instruct",
    "glm": "zai-org/GLM-5.1",
    "glm5": "zai-org/GLM-5.1",
    "glm4.7": "zai-org/GLM-4.7",
    "glm4.5": "zai-org/GLM-4.5",
    "glm4.5air": "zai-org/GLM-4.5-Air",
    "glm4": "THUDM/glm-4-9b-chat",
    "chatglm": "THUDM/chatglm3-6b",
    "minimax": "MiniMaxAI/MiniMax-M3",
    "minimaxm2": "MiniMaxAI/MiniMax-M2",
    "yi": "01-ai/Yi-1.5-6B-Chat",
    "baichuan": "baichuan-inc/Baichuan2-7B-Chat",
    "baichuan2": "baichuan-inc/Baichuan2-7B-Chat",
    "internlm": "internlm/internlm3-8b-instruct",
    "internlm2": "internlm/internlm2-7b",
    "vicuna": "lmsys/vicuna-7b-v1.5",
    "llava": "llava-hf/llava-v1.6-mistral-7b-hf",
    "llava1.6": "llava-hf/llava-v1.6-mistral-7b-hf",
    "llava1.5": "llava-hf/llava-1.5-7b-hf",
    "tinyllama": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "smollm3": "HuggingFaceTB/SmolLM3-3B",
    "falcon": "tiiuae/falcon-7b",
    "commandr": "CohereForAI/c4ai-command-r-v01",
    "commandrplus": "CohereForAI/c4ai-command-r-plus",
    "starcoder2": "bigcode/starcoder2-3b",
    "bert": "google-bert/bert-base-uncased",
    "gpt2": "openai-community/gpt2",
    "t5": "google-t5/t5-base",
    "whisper": "openai/whisper-large-v3",
    "bloom": "bigscience/bloom",
    "ernie": "baidu/ERNIE-4.5-21B-A3B-PT",
    "hunyuan": "tencent/Hunyuan-A13B-Instruct",
    "opt": "facebook/opt-1.3b",
    "dbrx": "databricks/dbrx-base",
}
# The best known model of a size, for who names no more than that: "a 70B".
OF_SIZE = {
    "0.5b": "Qwen/Qwen2.5-0.5B-Instruct",
    "0.6b": "Qwen/Qwen3-0.6B",
    "1b": "meta-llama/Llama-3.2-1B-Instruct",
    "1.5b": "Qwen/Qwen2.5-1.5B-Instruct",
    "2b": "google/gemma-2-2b-it",
    "3b": "meta-llama/Llama-3.2-3B-Instruct",
    "4b": "Qwen/Qwen3-4B",
    "7b": "Qwen/Qwen2.5-7B-Instruct",
    "8b": "meta-llama/Llama-3.1-8B-Instruct",
    "9b": "google/gemma-2-9b-it",
    "12b": "google/gemma-3-12b-it",
    "13b": "meta-llama/Llama-2-13b-chat-hf",
    "14b": "Qwen/Qwen2.5-14B-Instruct",
    "20b": "openai/gpt-oss-20b",
    "24b": "mistralai/Mistral-Small-24B-Instruct-2501",
    "27b": "google/gemma-3-27b-it",
    "30b": "Qwen/Qwen3-30B-A3B",
    "32b": "Qwen/Qwen2.5-32B-Instruct",
    "34b": "01-ai/Yi-1.5-34B-Chat",
    "65b": "huggyllama/llama-65b",
    "70b": "meta-llama/Llama-3.3-70B-Instruct",
    "72b": "Qwen/Qwen2.5-72B-Instruct",
    "120b": "openai/gpt-oss-120b",
    "235b": "Qwen/Qwen3-235B-A22B",
    "405b": "meta-llama/Llama-3.1-405B-Instruct",
    "671b": "deepseek-ai/DeepSeek-V3",
}
# What makers offer now to chat, write and program with, each size of a family once: what a card is asked for that names no model.
CURRENT = (
    "Qwen/Qwen3.5-0.8B", "Qwen/Qwen3.5-2B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-9B", "Qwen/Qwen3.5-27B", "Qwen/Qwen3.6-35B-A3B",
    "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3.5-122B-A10B", "Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen3-Coder-480B-A35B-Instruct",
    "google/gemma-4-E2B-it", "google/gemma-4-E4B-it", "google/gemma-4-12B-it", "google/gemma-4-26B-A4B-it",
    "google/gemma-4-31B-it", "openai/gpt-oss-20b", "openai/gpt-oss-120b", "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "mistralai/Ministral-3-3B-Instruct-2512", "mistralai/Ministral-3-8B-Instruct-2512",
    "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistralai/Devstral-2-123B-Instruct-2512", "microsoft/Phi-4-mini-instruct",
    "microsoft/phi-4", "zai-org/GLM-4.7-Flash", "zai-org/GLM-4.5-Air", "zai-org/GLM-4.7", "zai-org/GLM-5.1",
    "deepseek-ai/DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Pro", "moonshotai/Kimi-K2.6", "MiniMaxAI/MiniMax-M3",
    "HuggingFaceTB/SmolLM3-3B", "ibm-granite/granite-4.0-h-micro", "ibm-granite/granite-4.0-h-small",
    "allenai/Olmo-3.1-32B-Instruct", "ByteDance-Seed/Seed-OSS-36B-Instruct", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)  # fmt: skip
# What families are called in Chinese.
_CHINESE = {
    "通义千问": "qwen",
    "千问": "qwen",
    "百川": "baichuan",
    "智谱": "glm",
    "书生·浦语": "internlm",
    "书生浦语": "internlm",
    "书生": "internlm",
    "零一万物": "yi",
    "混元": "hunyuan",
    "文心一言": "ernie",
    "文心": "ernie",
    "深度求索": "deepseek",
    "月之暗面": "kimi",
    "羊驼": "llama",
}
# Names of models whose weights nobody can load.
_CLOSED = re.compile(r"(chat)?gpt-?(3\.5|4|4o|4\.1|4\.5|5)(-?(turbo|mini|nano|o))?$|claude|gemini|(^|[^a-z])o[134](-mini)?$")
# Organisations that publish their own models, the best known first.
MAKERS = (
    "qwen", "meta-llama", "deepseek-ai", "google", "mistralai", "openai", "microsoft", "zai-org", "moonshotai", "nvidia",
    "minimaxai", "thudm", "01-ai", "baichuan-inc", "internlm", "opengvlab", "openbmb", "baidu", "tencent", "bytedance-seed",
    "stepfun-ai", "xiaomimimo", "cohereforai", "coherelabs", "ibm-granite", "allenai", "huggingfacetb", "tiiuae", "llava-hf",
    "lmsys", "codellama", "tinyllama", "huggyllama", "eleutherai", "bigcode", "bigscience", "facebook", "mosaicml",
    "databricks", "ai21labs", "state-spaces", "liquidai", "lgai-exaone", "upstage", "stabilityai", "baai", "google-bert",
    "google-t5", "facebookai", "openai-community", "rwkv", "salesforce", "snowflake", "togethercomputer", "openlm-research",
    "xai-org", "poolside", "arcee-ai", "inclusionai", "swiss-ai", "meituan-longcat",
)  # fmt: skip
_RANK = {maker: place for place, maker in enumerate(MAKERS)}
_WORDS = re.compile(r"\d+x\d[\d.]*[bmt]|[ae]?\d[\d.]*[bmt](?![a-z])|[a-z]+|\d[\d.]*")
_SIZE = re.compile(r"\d+x\d[\d.]*[bmt]|\d[\d.]*[bmt]")
_GENERATION = re.compile(r"^[a-z_-]*?[a-z](?<!int)(?<!fp)[_-]?v?(\d(?:\.\d+)?)(?![\d.]*[bmtx\d])")


def in_english(name: str) -> str:
    """A Chinese name of a family in the letters of its ids: 通义千问7B is qwen 7B."""
    for chinese, english in _CHINESE.items():
        name = name.replace(chinese, f" {english} ")
    return " ".join(name.split())


def short_name(name: str) -> str | None:
    """The id that a family's bare name means, None for anything longer."""
    return SHORT.get(re.sub(r"[\s_-]+", "", name.strip().lower()))


def closed(name: str) -> bool:
    """Whether the name is that of a model whose weights are not published."""
    return _CLOSED.search(name.strip().lower().replace(" ", "-")) is not None


def is_by_maker(model_id: str) -> bool:
    """Whether the id is an organisation's own model."""
    return model_id.lower().partition("/")[0] in _RANK


_LONGEST_NAME = 128  # letters of a name that are held against the known ones: likeness takes time with its square


def suggestions(name: str, known: list[str], *, least: float = 1, most: int = 3) -> list[str]:
    """The known ids most like a name, makers' own first among equals; empty where none is at least so like it (1: a family)."""
    name = name[:_LONGEST_NAME]
    asked = _WORDS.findall(name.lower().rpartition("/")[2])
    scored = [(_likeness(name, asked, one), -_known(one), one) for one in known]
    best = sorted((row for row in scored if row[0] >= least), key=lambda row: (-row[0], row[1], *_place(row[2])))
    return [one for _, _, one in best[:most]]


def best_known_first(names: Iterable[str]) -> list[str]:
    """The ids in the order in which people look for them: what short names mean, then makers, each newest generation first."""
    return sorted(names, key=_place)


@cache
def _current() -> dict[str, int]:
    return {one.lower(): place for place, one in enumerate(dict.fromkeys(SHORT.values()))}


def _place(one: str) -> tuple[int, int, float, str]:
    """Sorts an id: its place among what short names mean, its maker's, then the newest generation first."""
    current = _current()
    return current.get(one.lower(), len(current)), -_known(one), -generation(one), one.lower()


def generation(one: str) -> float:
    """The generation in a name: 3.1 of ``Llama-3.1-8B``, 3 of ``DeepSeek-V3``; 0 where none stands."""
    found = _GENERATION.search(one.lower().rpartition("/")[2])
    return float(found[1]) if found else 0.0


def _likeness(name: str, asked: list[str], one: str) -> float:
    """Two for the family, one more for the size, a little for other words in common and for similar letters."""
    own = _WORDS.findall(one.lower().rpartition("/")[2])
    families = [w for w in asked if w.isalpha() and len(w) > 1]
    shared = sum(w in own for w in families)
    sizes = {w for w in asked if _SIZE.fullmatch(w)}
    if families and not shared:
        close = SequenceMatcher(None, name.lower(), one.lower()).ratio()
        return 4 * close if close > 0.72 else 0.0
    if not families and not sizes & set(own):
        return 0.0
    others = sum(w in own for w in asked if not w.isalpha() and w not in sizes)
    beyond = len([w for w in own if w.isalpha()]) - shared
    letters = SequenceMatcher(None, name.lower(), one.lower()).ratio() if families else 0.0
    return 2 * shared + bool(sizes & set(own)) + 0.5 * others - 0.1 * beyond + letters + (0.5 if is_by_maker(one) else -1)


def _known(one: str) -> int:
    return len(MAKERS) - _RANK.get(one.lower().partition("/")[0], len(MAKERS))
