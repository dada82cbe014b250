"""The words of a question in a person's words: what asks, what is said, what is wanted; numbers and what joins them to cards."""
# ruff: noqa: RUF001 (Chinese punctuation and the sign of multiplication are what people type)

import re

NUMBERS = {
    "a": 1, "an": 1, "my": 1, "the": 1, "one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "quad": 4, "eight": 8,
    "一": 1, "单": 1, "两": 2, "二": 2, "双": 2, "三": 3, "四": 4, "八": 8,
}  # fmt: skip
TRAINS = (
    r"fine[- ]?tun+(?:e|ing|ed)|train(?:ing)?|pre-?train(?:ing)?|(?<![a-z])(?:sft|grpo|dpo|kto|orpo|ppo)(?![a-z])"
    r"|q?lora|微调|训练|全参"
)
RUNS = r"run(?:ning)?|serv(?:e|ing)|load|host|deploy|use|fits?|inference"
# What stands before, between and behind the names, and says nothing that a flag could.
ASKING = re.compile(
    rf"""^(?:
    (?:can|could|may|will|would|does|do|is|it|i|we|you|able|possible|to|how|much|many|what|which|vram|gpu|gpus|memory|need|needs|
    needed|needing|require[sd]?|for|of|enough|ok|please|hello|hi|want|wanna|try|trying|the|my|models?|llms?|inside|hold|handle|get|
    i'm|or|there|any|are|was|be|not|but|so|like|when|why|runs|into|out|oom|cuda|mem|ram|dose|provide|give|tell|resources?|power|error|
    errors|fails?|crash(?:es)?|concurrently|length|size|gaming|blocks|single|double|dual|possible|works?|during|fully|
    parameters?|params?|embeddings?|reranker|faster|slower|really|worth|differences?|between|whats|vs|too|large|big|small|tiny|biggest|largest|smallest|used|second-?hand|old|new|understand|don't|issue|problem|case|by\s+default|default|
    best|good|better|buy|rent|should|hardware|only|just|have|has|got|i've|this|that|still|even|now|requirements?|
    specs?|minimum|min|recommended|anyone|someone|know|would|about|expect|system|pc|machine|laptop|rig|setup|properly|comfortably|
    {RUNS}|{TRAINS}|full|and|with|using|on|in|at|into|by|via|under|from|a|an|card|cards|locally|local|me|if|take|takes)\b
    |运行|部署|推理|微调|训练|全参|全量|跑得起来|跑|装|请问|大佬|我|想|如果|大概|大约|至少|最少|最低|所需要|所需|建议|推荐|配置|要求|硬件
    |多大|多卡|单卡|几张|几块|几|显示|正常|不足|不够|起来|起|啊|吧|哦|谢谢|请教|请|老师|各位|大家|的话|使得|服务器|机器|哪张|哪个|哪|什么|什|麼|买|租|合适|能不能|能否|可不可以|可以|能|够不够|够|吗|呢|么|需要|需|要|多少|显存|内存|才|用|使用|在|上|下|的|张|块|卡|显卡|得动|不|动|得|
    了|是|否|单机|本地|一|单|大|模型|来|多|显|所|进行|方案|满血版|满血|时|爆炸|爆满|爆|但是|但|无法|不能|为什么|为何|怎么|如何|开启|个|例如|比如|哪怕|速率|慢|一些|参数|大多|至少|做|也|以|溢出|最低|目前|看|这|那|请|支持|更?快|更?好|有|，|。|？|[?!.,:;'"()\s]
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# A length that stands before "max context" is the one that is said; another number there is a card's (RTX 4090, H100, 2x3090).
_AFTER_A_LENGTH = r"(?<!\d[km]\s)(?<!\d\s[km]\s)(?<!\d{5}\s)(?<!\b(?:1024|2048|4096|8192)\s)"
# A number of four digits that consumer cards have: GTX 1080, RTX 4090, RX 7900.
_CARDS_NUMBER = r"(?:10[3-8]|16[3-6]|20[5-8]|[345]0[5-9])0|[67][4-9][05]0|90[67]0"
SAID = (
    ("context", re.compile(
        r"(?<!rtx )(?<!gtx )(?<!rx )(?<!quadro )\b"
        rf"(\d+(?:\.\d+)?\s?[km]|(?!(?:{_CARDS_NUMBER})\b)\d{{4,7}})\s*(?:-?\s?tokens?)?\s*(?:of\s+)?"
        r"(?:max(?:imum)?\s+)?(?:context|ctx|窗口)(?:\s+(?:length|window))?", re.I)),
    ("context", re.compile(r"(?:context|ctx|上下文|长度)\s*(?:length|window|of|=|为|是)*\s*(\d+(?:\.\d+)?\s?[km]?)\b", re.I)),
    ("context", re.compile(r"(\d+(?:\.\d+)?\s?[km])\s*(?:的)?上下文", re.I)),
    ("context", re.compile(
        r"\b(entire|full|whole|maximum|max|native) (?:supported )?(?:context|ctx)(?: (?:length|window|size))?", re.I)),
    ("context", re.compile(r"\b(?:with|at)\s+(\d+(?:\.\d+)?[km])\b(?!\s*(?:users|people))", re.I)),
    ("context", re.compile(
        rf"\b(\d{{1,3}}k|(?!(?:{_CARDS_NUMBER})\b)\d{{4,7}})\s+max[-_ ](?:model|seq(?:uence)?)[-_ ]len(?:gth)?\b", re.I)),
    ("context", re.compile(
        r"(?:max[-_ ]?(?:(?:seq(?:uence)?|model)[-_ ]?)?len(?:gth)?|seq(?:uence)?(?:[-_ ]?len(?:gth)?)?|cutoff[-_ ]?len)"
        r"\s*(?:of|[:=])?\s*(\d+(?:\.\d+)?k?)\b", re.I)),
    ("tokens", re.compile(
        r"(?:\b(?:on|over|for|with)\s+)?(?<![\w.])(\d+(?:\.\d+)?\s?[tb])\s*(?:个?\s*tokens?\b|的?数据)", re.I)),
    ("deadline", re.compile(
        r"\b(?:in|within|under)\s+(\d+\s*(?:d(?:ays?)?|h(?:ours?|rs?)?|weeks?))\b|"
        r"(?<!\d)(\d+\s*(?:天|小时|周))(?:内|之内|以内|训完)", re.I)),
    ("samples", re.compile(
        r"(?:on |with )?(\d+(?:\.\d+)?\s?[km]?)\s*(?:samples|examples|rows|conversations|条(?:数据|样本)?)", re.I)),
    ("context", re.compile(
        r"(?<![\w.-])(?<!image )(?<!images )(?<!video )(\d{1,3}k|1m)(?![\w-])"
        r"(?!\s*(?:resolution|images?|videos?|分辨率|图|tokens?\s*/))", re.I)),
    ("context", re.compile(  # not a rate, an answer's length or what is trained on, nor half of 32,768
        r"(?<![\w.,-])(?<!\bon )(?<!generate )(?<!generating )(?<!output )(?<!produce )"
        r"(\d{3,7})[- ]tokens?\b(?!\s*(?:/|per|a|each|every|output|out|input|in|generated)\b|\s*/)", re.I)),
    ("epochs", re.compile(r"(?:for )?(\d+)\s*(?:epochs?|轮)", re.I)),
    ("zero", re.compile(r"(?:deepspeed\s*)?\bzero[- ]?(?:stage[- ]?)?([0-3])\b", re.I)),
    ("fsdp", re.compile(r"\b(fsdp[12]?)\b", re.I)),
    ("max-num-seqs", re.compile(r"(?<![\w-])(?:--)?max[-_]num[-_]seqs\s*[=:]?\s*(\d+)", re.I)),
    ("gpu-memory-utilization", re.compile(
        r"(?<![\w-])(?:--)?gpu[-_](?:memory|mem)[-_]util(?:ization)?\s*[=:]?\s*(0?\.\d+)", re.I)),
    ("host", re.compile(r"host-memory-(\d+)", re.I)),
    ("dtype", re.compile(
        r"(?:\b(?:in|at)\s+)?(?<![\w.-])(fp16|bf16|float16|bfloat16|16[- ]?bits?|half precision|半精度)\b", re.I)),
    ("concurrency", re.compile(
        r"(?:for )?(?<![\w.])(\d+)\s*(?:concurrent )?(?:users?|people|requests?|clients?|并发|个?用户|人)", re.I)),
    ("batch", re.compile(r"(?:micro[- ])?batch(?:[- _]size)?\s*(?:of|[:=])?\s*(\d+)", re.I)),
    ("engine", re.compile(
        r"(?:\b(?:through|via|using|by)\s+)?\b(vllm|sglang|ollama|llama\.?cpp|tensorrt-llm|trt-llm|transformers)\b", re.I)),
    ("framework", re.compile(r"\b(unsloth|axolotl|llama[- ]factory|torchtune|torchtitan|megatron(?!-)|litgpt)\b(?!/)", re.I)),
    ("task", re.compile(r"(?<![A-Za-z0-9_-])(grpo|dpo|kto|orpo|ppo)(?![A-Za-z0-9_-])", re.I)),
    ("rank", re.compile(r"(?:\b(?:lora[-_ ])?(?:rank|r)\s*[=:]\s*|\brank\s+(?:of\s+)?)(\d{1,4})\b", re.I)),
    ("method", re.compile(
        r"(?<![A-Za-z0-9_-])(qlora|lora|全参(?:数)?|全量|full(?=[- ]?(?:fine|param|train|sft)))(?![A-Za-z0-9_-])", re.I)),
    ("kv", re.compile(
        r"(?<![\w.-])(fp8|q8(?:_0)?|q4(?:_0)?|int8|[48][- ]?bits?)\s*(?:kv[- ]?cache|kv\b)|"
        r"kv[- ]?cache\s*(?:in|at|of|=|as)?\s*(fp8|q8(?:_0)?|q4(?:_0)?|int8|[48][- ]?bits?)", re.I)),
    ("quant", re.compile(
        r"(?<![\w.-])((?:i?q\d(?:_[a-z0-9]+)*)|fp8|awq(?=-int4)|gptq(?=-int[48])|awq|gptq|nf4|int[48]|[48][- ]?bits?|qat)"
        r"(?:-int[48])?(?![\w.-])", re.I)),
)  # fmt: skip
# What is asked for beside "does it fit", and the words that ask for it; the first that is found.
WANTED = (
    ("users", re.compile(
        r"how many (?:concurrent |parallel |simultaneous )?(?:users|people|requests|clients|sessions)|"
        r"max(?:imum)? (?:number of )?(?:concurrent )?(?:users|concurrency|requests)|"
        r"(?:支持|能带|服务)?多少(?:个)?(?:用户|并发|人)|并发(?:人数|数|量|上限)", re.I)),
    ("longest", re.compile(
        rf"{_AFTER_A_LENGTH}(?:max(?:imum)?|longest|largest|biggest|how (?:long|much|big)(?: of)?(?: an?)?)\s+"
        r"(?:(?:context|ctx)(?:\s+(?:length|window|size))?|model len(?:gth)?(?!\s*(?:of|[:=])?\s*\d))|"
        r"as long (?:a )?context as possible|"
        r"最大上下文|最长上下文|上下文最(?:大|长)|上下文(?:长度)?(?:能|可以|可)?(?:开|设置?|跑|支持)?(?:到|得)?多(?:大|长|少)|"
        r"(?:支持|开|跑)多(?:大|长|少)的?上下文", re.I)),
    ("speed", re.compile(
        r"(?:(?:is |are |get |getting |only )\d[\d.]*\s*)?(?:tokens?|tok|t)\s*(?:/|per |a )\s*(?:s|sec|second)\b"
        r"(?: (?:normal|good|ok|slow|right))?|"
        r"how (?:fast|slow)(?: (?:is|does|will|can))?|tokens? speed|\bspeed\b|多快|速度", re.I)),
    ("nodes", re.compile(
        r"how many (?:nodes|machines|servers)(?: (?:each )?(?:having|with|of))?|(?:几|多少)\s*(?:台|节点|个节点)", re.I)),
    ("cards", re.compile(
        r"how many (?:cards|gpus)|how many (?:blocks|pieces|units) of|how many(?= (?:\d+ ?gb? )?(?:[a-z]+ ?)?[a-z]{0,3}\d)|"
        r"(?:几|多少)\s*(?:张|块|卡)", re.I)),
    ("batch", re.compile(
        r"(?:max(?:imum)?|largest|biggest)\s+(?:micro[- ]?)?batch(?:[- ]size)?(?! ?[:=]?\s*\d)|最大\s*batch(?:\s*size)?|"
        r"batch(?:\s*size)?\s*最大(?:是|为|能|可以)?(?:多少|多大)?", re.I)),
    ("cost", re.compile(
        r"how much (?:does|would|will|did) it cost(?: to)?|what (?:does|would|will) it cost(?: to)?|\bcosts?\b|"
        r"(?:要|需要)?花?多少钱|费用|成本", re.I)),
    ("kv", re.compile(
        r"(?:size of (?:the |a )?)kv[- ]?cache(?: of)?|kv[- ]?cache size(?: of)?|"
        r"how (?:big|large|much) is (?:the )?kv[- ]?cache|kv ?(?:缓存|cache)(?:大小|多大)", re.I)),
    ("time", re.compile(
        r"how (?:long|many (?:hours|days))(?: (?:does|will|would|to|it|take|takes|for))*(?= .*(?:train|tun|pretrain))|"
        r"要?多久|多长时间", re.I)),
    ("layers", re.compile(r"how many layers(?: (?:fit|go|are|offloaded|on|to|in|the|a|my|gpu|card|vram))*", re.I)),
    ("quant", re.compile(r"(?:which|what|best)\s+(?:quant\w*|precision|gguf)|哪(?:个|种)量化|什么量化", re.I)),
)  # fmt: skip
# What 16 bits are called, by the first two letters.
DTYPES = {"fp": "float16", "fl": "float16", "bf": "bfloat16", "16": "float16", "ha": "float16", "半精": "float16"}
# The host's memory, beside a card's; and machines whose card computes in the same memory.
HOST = re.compile(
    r"(?<![A-Za-z0-9.])(?P<size>\d{1,4})\s?(?:gb?|gigs?)\s*(?:of\s+)?(?:(?:system|main|host|cpu|pc|ddr[45])\s*)*(?:\bram\b|\bddr[45]\b|内存)",
    re.I)  # fmt: skip
SHARED = re.compile(r"(?:\bm\d\b|mac|apple|strix|halo|spark|395|ultra|studio|mini|unified)[^,;]{0,20}$", re.I)
# Between two cards: two offers, or one machine.
EITHER = re.compile(r"\bor\b|\bvs\b|\bversus\b|还是|或者?", re.I)
BOTH = re.compile(r"[\s,]*(?:and|\+|plus|with|加上?|和|&|,|、)\s*(?:an?|one|the|my)?\s*", re.I)
_TUNES = r"(?:[- ](?:param\w*[- ])?(?:fine[- ]?tun\w*|training|sft))?"
TWO_WAYS = re.compile(  # q4 or q8, lora vs qlora
    rf"(?<!\S)([\w-]+?){_TUNES}\s*(?:\bor\b|\bvs\b\.?|\bversus\b|还是|或者?)\s*([\w-]+?){_TUNES}(?![\w-])", re.I)  # fmt: skip
WHICH_CARD = re.compile(r"\bwhich\s+(?:is|one|card|gpu|of)\b|\bbetter\b|\bfaster\b|哪(?:个|张|款|种)(?!模型|量化)", re.I)
PLUS = re.compile(r"(?<=[\dis])\+(?=\d)")  # 4090+3090
SIZE_OF_A_CARD = re.compile(r"\d{1,3}\s?gb?", re.I)
SUFFIX = re.compile(r"(?:ti\w*|su\w*|xt\w*|gre|d|m|laptop|mobile)", re.I)  # of a card's name
CLUSTER = 256  # cards that a cluster is asked for where a line wants to know how many
SPEED_CONTEXT = "2048"  # where the speed is asked: of the prompt and output below
SAME_SIZE = 0.15  # a size in a name is rounded, and may leave the embedding out
USUAL_CONTEXT = "4096"  # of a user, where none was said
METHODS = {"全参": "full", "全参数": "full", "全量": "full"}
# What publishers' files of so many bits mostly are (llama.cpp, tools/quantize/README.md).
FILES = {
    "Q2": "Q2_K",
    "Q3": "Q3_K_M",
    "Q4": "Q4_K_M",
    "Q5": "Q5_K_M",
    "Q6": "Q6_K",
    "Q8": "Q8_0",
    "QAT": "Q4_0",
}  # trained for llama.cpp's Q4_0: google/gemma-3-27b-it-qat-q4_0-gguf and its kin


BEFORE = re.compile(
    rf"(?<![A-Za-z0-9.])(?<![A-Za-z]-)(?:[x×*](?=\d))?(\d{{1,4}}|{'|'.join(NUMBERS)})\s*(?:[x×*]|张|块|卡|个)?\s*"
    r"(?:(?:used|new|old|second-?hand|refurbished|identical|nvidia)\s+)*$", re.I)  # fmt: skip
CARD_BEHIND = re.compile(r"\b(?:on|with|for|in)\s+(?:(?:an?|the|my|one)\s+)?((?=[^?!,]*\d)[\w][\w .+-]{1,40}?)[?!. ]*$", re.I)
# Several machines of so many cards each: 两台8卡A800, two 8x H100 nodes, 4 nodes of 8 H100.
_FEW = rf"\d{{1,3}}(?![\d.]|\s?gi?b?\b|\s?tb\b)|{'|'.join(word for word, number in NUMBERS.items() if number > 1)}"
_BOX = r"(?:nodes?|servers?|machines?|hosts?|boxes)"
MACHINES = (
    re.compile(rf"(?<![A-Za-z0-9.])({_FEW})\s*(?:台|个节点)\s*({_FEW}|单)\s*(?:[x×*]|卡|张|块)\s*(?:的\s*)?()", re.I),
    re.compile(rf"(?<![A-Za-z0-9.])({_FEW})\s+{_BOX}[\s,]+(?:of|with|each(?:\s+(?:with|having))?)\s+({_FEW})\s*[x×]?\s*()", re.I),
    re.compile(rf"(?<![A-Za-z0-9.])({_FEW})\s+(?:[x×]\s*)?({_FEW})\s*[x×]\s*([\w.-]+(?:\s\d+\s?gb?)?)\s+{_BOX}\b", re.I),
)
TOTAL = re.compile(
    r"\s*=\s*\d{1,5}\s?gi?b?(?:\s+(?:of|in|total|combined|v?ram|memory))*\b", re.I
)  # 4 x A6000 = 192 GB total VRAM
AFTER = re.compile(r"\s*[x×*]\s*(\d{1,4})\b|\s*(\d{1,3}|[单一两二双三四八])\s*[张卡块](?!\s*显存)")
COUNTED = re.compile(r"(\d{1,4})\s*(?:[x×*]|张|块|卡|个)\s*(.+)", re.I)
ON = re.compile(r"(.+?)\s+on\s+(?:(?:an?|the|my)\s+)?(.+)", re.I)
A_MAC = re.compile(r"\b(?:macbook(?:\s+(?:pro|air))?|imac|mac\s+(?:mini|studio|pro))\b", re.I)
PLURAL = re.compile(r"(?<=\d)s$")
CARDS = re.compile(r"\s+(?:gpus?|cards?|each)$", re.I)
GLUED = re.compile(r"(?<![A-Za-z0-9.-])(\d{1,4})[x×*](?=[A-Za-z0-9])(?!\d+(?:\.\d+)?b\b)", re.I)
# Between Chinese and Latin words a space; a maker's name stays with its card, and a counter with its number.
MIXED = re.compile(r"(?<=[A-Za-z0-9])(?=[\u4e00-\u9fff])|(?<=[\u4e00-\u9fff])(?=[A-Za-z0-9])")
SIZE_ALONE = re.compile(
    r"(?<![\w.-])(\d+(?:\.\d+)?b)(?:illion)?(?:\s+param(?:eter)?s?)?(?:[\s-]*(?:models?|llms?|class))?(?![\w-])", re.I
)
SIZED = re.compile(r"(.+?)[ -](\d+(?:\.\d+)?)\s?([bt])", re.I)
MAKERS = ("昇腾", "华为", "海光", "寒武纪", "沐曦", "摩尔线程", "英伟达", "苹果")
# The line names a card and asks for models instead of naming one.
WHICH_MODELS = re.compile(
    r"\b(?:what|which|best|good|any|largest|biggest|recommended?)\b.*\b(?:models?|llms?)\b|\b(?:models?|llms?)\b.*\b(?:can|run|fit)\b|"
    r"\bwhat\s+(?:can|could|should)\s+(?:i|we|it|you)\s+(?:run|train|finetune|fine-tune)\b|(?:哪些|什么|哪个|多大的?)(?:大)?模型|能(?:跑|运行|训练)(?:什么|哪些|多大)",
    re.IGNORECASE,
)
