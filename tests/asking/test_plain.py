"""Questions in a person's words become the words of a command; what is none stays an error."""

# ruff: noqa: RUF001 (Chinese punctuation is what people type)

import pytest

from vramcast.asking.plain import plain_question
from vramcast.cli import run


@pytest.mark.parametrize(
    ("text", "command", "model", "flags"),
    [
        ("tokens per second llama 70b on 2x 3090", "fit", "llama 70b", "--gpu=3090x2 --context=2048 --only=run"),
        ("tokens per second qwen3 8b on a 4090", "serve", "qwen3 8b", "--gpu=4090 --context=2048 --prompt=1024 --output=256"),
        ("llama 3.1 8b on a 4090", "fit", "llama 3.1 8b", "--gpu=4090"),
        ("can I run qwen3 32b on 2x 3090 with 32k?", "fit", "qwen3 32b", "--gpu=3090x2 --context=32k --only=run"),
        ("can i run deepseek r1 on 8xA100 80GB", "fit", "deepseek r1", "--gpu=A100 80GBx8 --only=run"),
        ("用4090能跑Qwen3-8B吗", "fit", "Qwen3-8B", "--gpu=4090 --only=run"),
        ("通义千问7B在3060上能跑吗", "fit", "通义千问 7B", "--gpu=3060 --only=run"),
        ("两张3090微调Qwen3-8B", "fit", "Qwen3-8B", "--gpu=3090x2 --only=train"),
        ("Qwen3-32B 需要多少显存", "fit", "Qwen3-32B", ""),
        ("how much vram do i need to run llama 3.3 70b?", "fit", "llama 3.3 70b", "--only=run"),
        ("full fine-tune qwen2.5 7b on 8 H100s", "train", "qwen2.5 7b", "--gpu=H100x8 --method=full"),
        ("fine-tune mistral 7b with lora and batch size 4 on a rtx 3090", "train", "mistral 7b",
         "--gpu=rtx 3090 --method=lora --micro-batch=4"),
        ("train llama 3 8b on colab with unsloth 4bit", "train", "llama 3 8b", "--gpu=colab --method=qlora --framework=unsloth"),
        ("llama 3.1 70b on 4 H100s with vllm for 16 users", "serve", "llama 3.1 70b",
         "--gpu=H100x4 --context=auto --concurrency=16 --engine=vllm"),
        ("Qwen3-30B-A3B 4bit on mac studio m2 ultra 192gb", "serve", "Qwen3-30B-A3B",
         "--gpu=mac studio m2 ultra 192gb --context=auto --quant=Q4_K_M"),
        ("qwen3:32b on g5.12xlarge", "serve", "qwen3:32b", "--gpu=g5.12xlarge --context=auto"),
        ("qwen3", "fit", "qwen3", ""),
        ("can I serve qwen3 8b to 20 users on a single L40S?", "fit", "qwen3 8b", "--gpu=L40S --users=20 --only=run"),
        ("qwen3 8b on four L40S cards", "fit", "qwen3 8b", "--gpu=L40Sx4"),
        ("can my 3090 train the lora in 8bit for a 13B?", "train", "meta-llama/Llama-2-13b-chat-hf",
         "--gpu=3090 --method=lora --quant=int8"),
        ("train llama 3.1 70B with qlora on 4 * A6000 GPUS = 192 GB total VRAM", "train", "llama 3.1 70B",
         "--gpu=A6000x4 --method=qlora"),
        ("two used 3090 or one 5090 for qwen3 32b?", "plan serve", "qwen3 32b", "--gpu=3090x2 --gpu=5090x1 --by=speed"),
        ("how many nodes each having 8 H100s for llama 3.1 405b", "plan serve", "llama 3.1 405b", "--gpu=H100 --by=cards"),
        ("Qwen3-8B 8*4090 并发人数", "serve", "Qwen3-8B", "--gpu=4090x8 --best=users --context=4096"),
        ("how much vram to run or fine-tune llama 3.1 8b", "fit", "llama 3.1 8b", ""),
        ("can i run llama 70b on two 3090s", "fit", "llama 70b", "--gpu=3090x2 --only=run"),
        ("which quant for 12 GB mistral nemo 12b", "fit", "mistral nemo 12b", "--gpu=12 GB"),
        ("llama 3.3 70b, 128k context, 5 users", "fit", "llama 3.3 70b", "--context=128k --users=5"),
        ("how many users can a 4090 serve with qwen3 8b", "serve", "qwen3 8b", "--gpu=4090 --best=users --context=4096"),
        ("RTX 4090 max context Qwen3-8B", "serve", "Qwen3-8B", "--gpu=RTX 4090 --best=context"),
        ("qwen3 32b on 2x3090 max context", "fit", "qwen3 32b", "--gpu=3090x2"),
        ("H100 maximum context length for Llama 3.1 70B", "fit", "Llama 3.1 70B", "--gpu=H100"),
        ("max context of qwen3 14b on a 4090", "fit", "qwen3 14b", "--gpu=4090"),
        ("max model len of qwen3 8b on a 3090", "serve", "qwen3 8b", "--gpu=3090 --best=context"),
        ("will 16GB load qwen3 8b with 32768 max model len in vllm", "serve", "qwen3 8b",
         "--gpu=16GB --context=32768 --engine=vllm"),
        ("qwen3 8b on a 3090 vllm max model len 8192", "serve", "qwen3 8b", "--gpu=3090 --context=8192 --engine=vllm"),
        ("qwen3 8b awq 32k max context on a 3090", "serve", "qwen3 8b", "--gpu=3090 --context=32k --quant=awq"),
        ("3090上Qwen3-8B最大上下文", "serve", "Qwen3-8B", "--gpu=3090 --best=context"),
        ("is 65 tokens/s normal for llama 2 7b on a 4090", "serve", "llama 2 7b",
         "--gpu=4090 --context=2048 --prompt=1024 --output=256"),
        ("4张3090卡使用qLora微调Qwen-14b", "train", "Qwen-14b", "--gpu=3090x4 --method=qlora"),
        ("Qwen3-VL-30B 两张H20 zero3 全量微调", "train", "Qwen3-VL-30B", "--gpu=H20x2 --method=full --zero=3"),
        ("Qwen-VL-Chat 2x4090 多卡微调 所需的内存多大", "fit", "Qwen-VL-Chat", "--gpu=4090x2 --only=train"),
        ("昇腾910B 8卡 能跑 qwen2.5 72b 吗", "fit", "qwen2.5 72b", "--gpu=昇腾 910Bx8 --only=run"),
        ("DeepSeek-V3 671B 部署 需要几张 H20", "plan serve", "DeepSeek-V3", "--gpu=H20 --by=cards"),
        ("phi-3 mini 3.8b on a100 40gb int8", "serve", "phi-3 mini", "--gpu=a100 40gb --context=auto --quant=int8"),
        ("how much vram for mixtral 8x7b q4", "serve", "mixtral 8x7b", "--engine=llama.cpp --quant=Q4_K_M"),
        ("llama 3.1 70b q4 on 2x 3090 tokens per second", "serve", "llama 3.1 70b",
         "--gpu=3090x2 --context=2048 --engine=llama.cpp --quant=Q4_K_M --prompt=1024 --output=256"),
        ("llama 3.1 70b q4_0 on ollama with a 3090: how many layers on the gpu?", "serve", "llama 3.1 70b",
         "--gpu=3090 --engine=ollama --quant=Q4_0"),
        ("qwen3.6:27b on dual RTX 3090s through ollama, 32k context", "serve", "qwen3.6:27b",
         "--gpu=RTX 3090x2 --context=32k --engine=ollama"),
        ("max batch size for llama 3 8b lora on a100 40gb seq 2048", "train", "llama 3 8b",
         "--gpu=a100 40gb --method=lora --seq=2048"),
        ("how long to finetune llama 3 8b on 100k samples with one h100", "train", "llama 3 8b", "--gpu=h100 --samples=100k"),
        ("unsloth qwen 14b on colab t4", "train", "qwen 14b", "--gpu=colab t4 --method=qlora --framework=unsloth"),
        ("strix halo 128gb gpt-oss 120b tokens per second", "serve", "gpt-oss 120b",
         "--gpu=strix halo 128gb --context=2048 --engine=llama.cpp --prompt=1024 --output=256"),
        ("Kimi K2 hardware requirements", "fit", "Kimi K2", ""),
        ("5090 vllm qwen3.6 27b nvfp4 196k ctx", "serve", "qwen3.6 27b nvfp4", "--gpu=5090 --context=196k --engine=vllm"),
        ("dose 8 A100 80g enough to finetune 70b llama2 ?", "fit", "llama2 70b", "--gpu=A100 80gx8 --only=train"),
        ("How many blocks of 80g a100 are needed to fine-tune the 70b model", "plan train", "meta-llama/Llama-3.3-70B-Instruct",
         "--gpu=80g a100x256 --by=cards"),
        ("Could you please provide the GPU RAM required to fine tune the Llama2 13B 32k", "fit", "Llama2 13B",
         "--seq=32k --only=train"),
        ("What's the minimum VRAM needed to use entire context length for Llama 3.1 405B", "fit", "Llama 3.1 405B",
         "--context=131072 --only=run"),
        ("deploy Qwen2.5-72B with as long context as possible, single RTX 6000 48G, AWQ-int4 and fp8 kv-cache", "serve",
         "Qwen2.5-72B", "--gpu=RTX 6000 48G --kv-dtype=fp8 --quant=awq --best=context"),
        ("RTX 4060 Ti 16G , Finetunning unsloth/Meta-Llama-3.1-8B-bnb-4bit OOM", "train", "unsloth/Meta-Llama-3.1-8B-bnb-4bit",
         "--gpu=RTX 4060 Ti 16G --method=qlora"),
        ("gpt-oss-20b-BF16 on x8 A100s (40gb) with deepspeed zero3", "train", "gpt-oss-20b-BF16", "--gpu=A100 40gbx8 --zero=3"),
        ("best command for a 3090 with CUDA 24GB llama 2 70B q4_k_m, how many layers", "serve", "llama 2 70B",
         "--gpu=3090 24GB --context=auto --engine=llama.cpp --quant=Q4_K_M"),
        ("dual RTX 3090 or Mac Studio 128GB for llama 3.3 70B", "plan serve", "llama 3.3 70B",
         "--gpu=RTX 3090x2 --gpu=Mac Studio 128GBx1 --by=speed"),
        ("minimax m2 on 8x 3090", "fit", "minimax m2", "--gpu=3090x8"),
        ("Qwen3-8B A10", "fit", "Qwen3-8B", "--gpu=A10"),
        ("phi-4 T4", "fit", "phi-4", "--gpu=T4"),
        ("qwen3 8b on a 4090, 32,768 tokens", "fit", "qwen3 8b", "--gpu=4090"),
        ("train qwen3 8b on 500000 tokens, one H100", "fit", "qwen3 8b", "--gpu=H100 --only=train"),
        ("qwen3 8b generate 500 tokens on a 4090", "fit", "qwen3 8b", "--gpu=4090"),
        ("bge-m3 on an L4, 512 tokens, batch 32", "serve", "bge-m3", "--gpu=L4 --context=512 --concurrency=32"),
        ("llama 8b on macbook pro", "fit", "llama 8b", "--gpu=macbook pro"),
        ("qwen 7b on my toaster", "fit", "qwen 7b", "--gpu=toaster"),
        ("is a mac pro good for llama 70b", "fit", "llama 70b", "--gpu=mac pro"),
        ("MacBook Pro 20GB llama 3 8b", "fit", "llama 3 8b", "--gpu=MacBook Pro 20GB"),
        ("Is 2x 3090 still worth it for 70B models at Q4 or should I get a single 5090?", "plan serve",
         "meta-llama/Llama-3.3-70B-Instruct", "--gpu=3090x2 --gpu=5090x1 --by=speed"),
        ("我有两台8卡A800，能部署Kimi-K2吗", "fit", "Kimi-K2", "--gpu=A800x16 --only=run"),
        ("two 8x H100 nodes for deepseek r1", "fit", "deepseek r1", "--gpu=H100x16"),
        ("glm 4.6 on 4 nodes of 8 H100", "fit", "glm 4.6", "--gpu=H100x32"),
        ("What's the max context of Gemma 3 27B QAT on a 3090?", "serve", "Gemma 3 27B",
         "--gpu=3090 --engine=llama.cpp --quant=Q4_0 --best=context"),
        ("max context of gemma 3 27b on a 3090", "fit", "gemma 3 27b", "--gpu=3090"),
        ("4090 24G 跑 Qwen3-32B-AWQ 上下文能开多大", "serve", "Qwen3-32B-AWQ", "--gpu=4090 24G --best=context"),
        ("Whats the difference in vram between q4 and q8 for a 34b model", "fit", "01-ai/Yi-1.5-34B-Chat", ""),
        ("What can I run with 12GB vram and 32GB ram?", "fit", "", "--gpu=12GB"),
        ("how many H100s to pretrain a 7B model on 1T tokens in 30 days", "plan train", "Qwen/Qwen2.5-7B-Instruct",
         "--gpu=H100x256 --tokens=1T --deadline=30d --by=cards"),
        ("训练一个1.5B的模型用4张4090需要多久，10B token", "train", "Qwen/Qwen2.5-1.5B-Instruct", "--gpu=4090x4 --tokens=10B"),
        ("is A100 40GB enough for DPO on Mistral 7B with LoRA r=64", "train", "Mistral 7B",
         "--gpu=A100 40GB --method=dpo --rank=64"),
        ("dpo qlora mistral 7b on a 3090", "train", "mistral 7b", "--gpu=3090 --method=dpo --rank=16 --quant=nf4"),
        ("how much does it cost to fine tune llama 3 70b lora", "plan train", "llama 3 70b",
         "--gpu=any --method=lora --by=cost"),
        ("Llama-3.1-8B-Instruct vllm max-num-seqs 256 on A10G out of memory", "serve", "Llama-3.1-8B-Instruct",
         "--gpu=A10G --context=auto --engine=vllm --max-num-seqs=256"),
        ("qwen3-vl 8b image 4k resolution vram on 3090", "fit", "qwen3-vl 8b", "--gpu=3090"),
        ("kv cache size of llama 3.1 70b at 32k", "serve", "llama 3.1 70b", "--context=32k"),
        ("embedding model bge-m3 vram", "fit", "bge-m3", ""),
        ("dual 5090 glm-4.7-flash speed", "fit", "glm-4.7-flash", "--gpu=5090x2 --context=2048 --only=run"),
        ("is 4bit kv cache supported, qwen3 32b on 24gb", "serve", "qwen3 32b",
         "--gpu=24gb --context=auto --engine=llama.cpp --kv-dtype=q4_0"),
        ("qwen3 32b q8 kv cache on m4 max 64gb with ollama", "serve", "qwen3 32b",
         "--gpu=m4 max 64gb --engine=ollama --kv-dtype=q8_0"),
        ("两块2080ti 22g 跑 qwen3 32b", "fit", "qwen3 32b", "--gpu=2080ti 22gx2 --only=run"),
        ("gemma 3 L4", "fit", "gemma 3", "--gpu=L4"),
        ("deepseek 8 h100", "fit", "deepseek", "--gpu=h100x8"),
        ("mixtral on a macbook pro 64gb", "fit", "mixtral", "--gpu=macbook pro 64gb"),
        ("full finetune qwen3 8b on 4x a100 80gb or 8x l40s", "plan train", "qwen3 8b",
         "--gpu=a100 80gbx4 --gpu=l40sx8 --method=full --by=time"),
        ("a 5090 or a 4090 for qwen3 32b", "plan serve", "qwen3 32b", "--gpu=5090x1 --gpu=4090x1 --by=speed"),
        ("For inference of 70B 32k model, is a single 80GB A100 or 2 40GB A100 enough", "plan serve",
         "meta-llama/Llama-3.3-70B-Instruct", "--gpu=80GB A100x1 --gpu=40GB A100x2 --context=32k --by=speed"),
        ("请问部署一个11B参数的模型至少需要大多显存？", "fit", "google/gemma-3-12b-it", "--only=run"),
        ("llama 3.3 70b on a 3090 and a 3060", "fit", "llama 3.3 70b", "--gpu=3090, 3060"),
        ("how many A100 do I need to serve a 70B in fp16", "plan serve", "meta-llama/Llama-3.3-70B-Instruct",
         "--gpu=A100 --bits=16 --by=cards"),
        ("full finetune llama 3 70b how many h100", "plan train", "llama 3 70b", "--gpu=h100x256 --method=full --by=cards"),
        ("is 32GB ram and 8GB vram enough for qwen3 30b a3b", "serve", "qwen3 30b a3b",
         "--gpu=8GB --engine=ollama --quant=Q4_K_M"),
        ("strix halo 128gb ram qwen3 30b a3b", "fit", "qwen3 30b a3b", "--gpu=strix halo 128gb"),
        ("Qwen-7B-Chat微调单卡需要多大显存可以跑得起来？RTX 3090 24G max-length: 1024 batch-size: 1", "fit", "Qwen-7B-Chat",
         "--gpu=RTX 3090 24G --seq=1024 --only=train"),
        ("qwen2 7B 微调 大概需要多少显存啊，在3090 上可以吗？", "fit", "qwen2 7B", "--gpu=3090 --only=train"),
    ],
)  # fmt: skip
def test_a_line_names_model_card_and_settings(text: str, command: str, model: str, flags: str) -> None:
    found = plain_question(text)
    assert found is not None
    assert (found.command, found.model, " ".join(found.flags)) == (command, model, flags)


@pytest.mark.parametrize("unread", ["32,768 tokens", "generate 500 tokens", "500 tokens output"])
def test_counts_of_tokens_that_are_no_context_are_left_to_the_reader(unread: str) -> None:
    found = plain_question(f"qwen3 8b on a 4090 {unread}")
    assert found is not None
    assert found.unread == unread


@pytest.mark.parametrize(
    "text",
    [
        "what is the weather on mars",
        "hello world",
        "sevre",
        "vllm",
        "show me the money",
        "",
        "x " * 200,
        "serve --gpu 4090",
    ],
)
def test_what_is_no_question_is_none(text: str) -> None:
    assert plain_question(text) is None


@pytest.mark.parametrize(
    ("text", "model", "unread"),
    [
        ("gpt-oss-20b with 8GB vram and 64GB ram", "gpt-oss-20b", "64GB of the machine's own memory"),
        ("fine-tune qwen3 8b on a 4090 for 3 users", "qwen3 8b", "3 users"),
        ("can I run qwen3 8b chat on windows with wsl on a 4090", "qwen3 8b chat", "windows wsl"),
        ("我的老电脑用4090能跑Qwen3-8B吗", "Qwen3-8B", "老电脑"),
        ("how much vram for phi4 14b with rag and langchain", "phi4 14b", "rag langchain"),
    ],
)
def test_what_is_not_read_is_told(text: str, model: str, unread: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = plain_question(text)
    assert found is not None
    assert (found.model, found.unread) == (model, unread)
    run([text])
    assert f"not read, and not counted: {unread}" in capsys.readouterr().err


def test_it_is_asked_without_quotes_too_and_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llama", "3.1", "8b", "on", "a", "4090"]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("asked as: vramcast fit 'llama 3.1 8b' --gpu=4090")
    assert "RUNS: bfloat16" in captured.out and "TRAINS: QLoRA" in captured.out


def test_with_a_flag_of_serve_it_is_the_ledger_of_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["llama 3.1 8b on a 4090", "--engine", "sglang", "--context", "8k"]) == 0
    captured = capsys.readouterr()
    assert "asked as: vramcast serve 'llama 3.1 8b' --gpu=4090 --engine sglang" in captured.err
    assert "SGLang" in captured.out


def test_an_id_alone_is_asked_about_and_a_slip_of_a_command_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["Qwen/Qwen3-8B"]) == 0
    assert run(["sevre"]) == 2
    assert "did you mean serve?" in capsys.readouterr().err


def test_the_page_says_which_precision_runs_where_the_published_one_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["qwen2.5 72b on 2x3090"]) == 0
    out = capsys.readouterr().out
    assert "RUNS: Q3_K_M" in out and "TRAINS: no" in out
    assert "shorter" in next(line for line in out.splitlines() if line.strip().startswith("Q4_K_M"))


@pytest.mark.parametrize(("line", "card"), [("llama 3.1 8b on a nocard", "nocard"), ("qwen3 8b on my 4070 tii", "4070 tii")])
def test_a_card_that_nobody_knows_is_refused_and_not_dropped(line: str, card: str) -> None:
    asked = plain_question(line)
    assert asked is not None
    assert f"--gpu={card}" in asked.flags
    assert " on " not in asked.model


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        ("best model for rtx 3060 12gb", ("--gpu=rtx 3060 12gb",)),
        ("what models can I run on 2x3090", ("--gpu=3090x2",)),
        ("what can I run on a 4090 with 32k context", ("--gpu=4090", "--context=32k")),
        ("what's the largest model I can fine-tune on a 4090", ("--gpu=4090", "--only=train")),
        ("4090能跑哪些模型", ("--gpu=4090",)),
    ],
)
def test_who_asks_which_models_a_card_runs_gets_the_page_of_the_card(line: str, flags: tuple[str, ...]) -> None:
    asked = plain_question(line)
    assert asked is not None and (asked.command, asked.model, asked.flags) == ("fit", "", flags)
    assert asked.words == ["fit", *flags]


def test_a_named_model_is_no_question_for_models() -> None:
    for line in ("which gpu for the llama 3.1 8b model on a 4090", "best way to run qwen3 8b on 3090"):
        asked = plain_question(line)
        assert asked is not None and asked.model


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("what can I run on a 9999", "unknown GPU '9999'"),
        ("best model", "vramcast fit --gpu CARD for the models it runs"),
        ("which model should I use?", "vramcast fit --gpu CARD for the models it runs"),
    ],
)
def test_who_asks_for_models_without_a_known_card_is_told_what_to_name(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "flags", "unread"),
    [
        ("which models run on RTX 9090", "--gpu=RTX 9090", ""),
        ("any good model for 8 users", "--users=8", ""),
        ("how many nodes with 8 H100 for deepseek-v3", "--gpu=H100 --by=cards", "nodes of 8"),
        ("deepseek-v3 需要几台 8卡 H100", "--gpu=H100 --by=cards", "nodes of 8"),
        ("llama 70b on a 4090 and 64GB", "--gpu=4090", "64GB"),
        ("llama 70b on a 3090 and a 4090", "--gpu=3090, 4090", ""),
        ("qwen3 8b int8 full fine-tune", "--method=full", "int8"),
        ("qwen3 8b int8 lora fine-tune on a 4090", "--gpu=4090 --method=lora --quant=int8", ""),
    ],
)
def test_what_no_flag_holds_is_told(text: str, flags: str, unread: str) -> None:
    asked = plain_question(text)
    assert asked is not None
    assert (" ".join(asked.flags), asked.unread) == (flags, unread)


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("3090 or 4090 or 5090 for qwen3 32b", "--gpu=3090x1 --gpu=4090x1 --gpu=5090x1 --by=speed"),
        ("4090, 5090 or RTX PRO 6000 for qwen3 32b", "--gpu=4090x1 --gpu=5090x1 --gpu=RTX PRO 6000x1 --by=speed"),
        ("3090 ti or 3090 for qwen3 32b", "--gpu=3090 tix1 --gpu=3090x1 --by=speed"),
        ("2x4090 + 2x3090 for qwen3 32b", "--gpu=4090, 4090, 3090, 3090"),
        ("qwen3 32b on 2 nodes with 8 h100 each", "--gpu=h100x16"),
        ("lora or full fine-tune qwen3 32b on h100", "--gpu=h100 --only=train"),
        ("fp8 vs bf16 qwen3 32b on h100", "--gpu=h100"),
        ("4张4090或者2张5090跑 qwen3 32b 哪个快", "--gpu=4090x4 --gpu=5090x2 --by=speed"),
        ("我有一张3090和一张4090能跑 qwen3 32b 吗", "--gpu=3090, 4090 --only=run"),
    ],
)
def test_every_card_and_way_of_a_choice_is_offered(text, flags):
    asked = plain_question(text)
    assert (asked.model, " ".join(asked.flags), asked.unread) == ("qwen3 32b", flags, "")


@pytest.mark.parametrize(
    ("text", "flags", "unread"),
    [
        ("two machines with 4090s for qwen3 8b", "--gpu=4090", "two machines"),
        ("3 machines with 24gb vram for qwen3 8b", "--gpu=24gb", "3 machines"),
        ("3090 with 64gb for qwen3 8b", "--gpu=3090", "64gb"),
        ("train qwen3 8b in 24 hours on a 4090", "--gpu=4090 --only=train", "24hours"),
    ],
)
def test_what_no_flag_takes_is_told_and_changes_no_number(text, flags, unread):
    asked = plain_question(text)
    assert (asked.model, " ".join(asked.flags), asked.unread) == ("qwen3 8b", flags, unread)


def test_the_release_of_a_model_is_a_part_of_its_name():
    asked = plain_question("whisper large v3 on 3060")
    assert (asked.model, asked.unread) == ("whisper large v3", "")
