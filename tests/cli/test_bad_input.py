"""What people get wrong: one line that says what, where and what to try; the right exit code; no traceback."""

import pytest

from vramcast.cli import run

LLAMA = "meta-llama/Llama-3.1-8B"
MIXTRAL = "mistralai/Mixtral-8x7B-v0.1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"serve {LLAMA} --gpu 5099", "did you mean RTX 5090"),
        (f"serve {LLAMA} --gpu RTX-4091", "unknown GPU 'RTX-4091': did you mean"),
        (f"serve {LLAMA} --gpu 4090 --engine vllmm", "unknown engine 'vllmm': did you mean vllm?"),
        (f"serve {LLAMA} --gpu 4090 --gpu-memory-utilisation 0.9", "did you mean --gpu-memory-utilization?"),
        (f"serve {LLAMA} --gpu 4090 --gpu-memory-utilization 1.9", "gpu_memory_utilization is 1.9: vllm takes 0.001 to 1"),
        (f"serve {LLAMA} --gpu 4090 --max-num-seqs -1", "max_num_seqs is -1: vllm takes 1 to 1,000,000,000"),
        (f"serve {LLAMA} --engine llama.cpp --split-mode rows", "unknown value for split_mode 'rows': did you mean row"),
        (f"serve {LLAMA} --gpu 4090 --context 24XB", "unknown suffix 'XB'"),
        (f"serve {LLAMA} --gpu 4090 --context 128k --concurrency 0", "concurrency is 0: expected at least 1"),
        (f"serve {LLAMA} --gpu 4090 --context 1m", "beyond meta-llama/Llama-3.1-8B's 131,072 positions"),
        (
            f"serve {LLAMA} --gpu 4090x3",
            "32 heads, tp=3 (vllm/config/model.py, verify_with_parallel_config); use tp of 1, 2, 4, 8",
        ),
        (f"serve {LLAMA} --gpu 4090 --quant q9", "unknown quantisation scheme 'q9'"),
        (f"serve {LLAMA} --gpu 4090 --dtype bf17", "unknown dtype 'bf17': did you mean bf16"),
        (f"serve {LLAMA} --gpu 4090 --explain weigths", "unknown term 'weigths': did you mean weights?"),
        (f"serve {LLAMA} --engine vllm==9.9", "vllm 9.9 is no known release: rules are known from 0.4.1 to"),
        (f"serve {LLAMA} --engine vllm==", "names no version: write for example vllm=="),
        (f"serve {LLAMA} --engine llama.cpp==main", "'main' is not a build"),
        (f"serve {LLAMA} --gpu 4090 --tp 0", "tp is 0: expected at least 1"),
        (f"serve {LLAMA} --gpu 4090x2 --tp 4", "tp 4 x pp 1 x dp 1 needs 4 cards, --gpu names 2"),
        ("serve /nonexistent/config.json", "no model at /nonexistent/config.json"),
        (f"train {LLAMA} --optimizer adamx", "unknown optimizer 'adamx': did you mean"),
        (f"train {LLAMA} --framework megatrom", "unknown framework 'megatrom': did you mean megatron"),
        (f"train {LLAMA} --gpu H100x8 --tp 3", "8 cards do not divide into tp 3"),
        (f"train {LLAMA} --seq 0", "seq is 0: expected at least 1"),
        (f"train {LLAMA} --seq 10m", "exceeds the 131,072 positions"),
        (f"train {LLAMA} --gpu H100x8 --ep 3", "ep 3 needs experts"),
        (f"train {LLAMA} --gpu H100x2 --pp 2", "hf_trainer has no pipeline parallelism"),
        (f"train {LLAMA} --method banana", "unknown method 'banana'"),
        (f"train {LLAMA} --method lora --rank 0", "rank is 0: expected at least 1"),
        (f"train {LLAMA} --rank 8", "add --method lora"),
        (f"train {LLAMA} --quant nf4", "use --method qlora"),
        (f"train {LLAMA} --checkpointing layer:x", "names no number of layers"),
        (f"train {LLAMA} --offload banana", "unknown offload 'banana'"),
        (f"train {LLAMA} --zero 3 --fsdp --gpu H100x2", "give one of them"),
        (f"train {LLAMA} --framework torchtitan --zero 2 --gpu H100x2", "torchtitan does not run DeepSpeed ZeRO"),
        (f"train {LLAMA} --framework llama_factory --zero 3 --param-dtype bf16 --gpu H100x2", "refuses pure_bf16 with ZeRO-3"),
        (
            f"train {LLAMA} --gpu H100x2 --framework deepspeed --zero 3 --pp 2",
            "DeepSpeed refuses ZeRO-3 with pipeline parallelism",
        ),
        (f"train {LLAMA} --gpu H100x7 --tp 2", "7 cards do not divide into tp 2 x pp 1 x cp 1 = 2"),
        (f"train {LLAMA} --gpu H100x6 --framework megatron --pp 3", "32 layers are not divisible by pp 3 x 1 chunks"),
        (f"train {LLAMA} --gpu H100x8 --framework megatron --pp 2 --vpp 3", "32 layers are not divisible by pp 2 x 3 chunks"),
        (f"train {LLAMA} --gpu H100x3 --framework megatron --tp 3", "32 attention heads are not divisible by tp 3"),
        (f"train {LLAMA} --gpu H100x16 --framework torchtitan --tp 16", "8 key-value heads are not divisible by tp 16"),
        (f"train {MIXTRAL} --gpu H100x6 --framework megatron --ep 3", "8 experts are not divisible by ep 3"),
        (f"train {MIXTRAL} --gpu H100x4 --framework megatron --ep 8", "ep 8 does not divide the 4 ranks of a stage"),
        (f"train {LLAMA} --gpu H100x8 --framework megatron --sp --tp 8 --seq 4097", "use --seq 4104"),
        (f"train {LLAMA} --framework megatron==abc", "framework version 'abc' is no release"),
        (f"train {LLAMA} --micro-batch -1", "micro_batch is -1: expected at least 1"),
        (f"train {LLAMA} --accumulate 0", "accumulate is 0: expected at least 1"),
        (f"train {LLAMA} --method lora --rank 100000000", "rank is 100,000,000: expected at most 1,000,000"),
        (f"train {LLAMA} --checkpointing layer:100", "names more than the 32 layers of the model"),
        (f"train {LLAMA} --set sub_group=0", "sub_group is 0: expected at least 1"),
        (f"train {LLAMA} --set imbalance=-1", "imbalance is -1: expected at least 1"),
        (f"train {LLAMA} --set hidden_dropout=1.5", "hidden_dropout is 1.5: expected a share below 1"),
        (f"train {LLAMA} --gpu H100x0", "GPU count 0 in 'H100x0' is out of range"),
        ("train --layers 2 --hidden 65 --heads 4 --vocab 100", "hidden 65 does not divide into 4 heads: give --head-dim"),
        (f"train {LLAMA} --gpu H100x8 --tp 0", "tp is 0: expected at least 1"),
        (f"train {LLAMA} --gpu H100x8 --fsdp --replicate 3", "8 data-parallel ranks do not divide into 3 replicas"),
        (f"train {LLAMA} --gpu H100x8 --fsdp --replicate 2 --shard 8", "not 2 replicas x 8 shards: use --replicate 1 --shard 8"),
        (f"train {LLAMA} --gpu H100x8 --fsdp --shard 3", "not replicas of 3 shards: use --replicate 4 --shard 2"),
        (f"train {LLAMA} --gpu H100x8 --fsdp --shard 0", "shard is 0: expected at least 1"),
        (f"train {LLAMA} --gpu H100x8 --replicate 2", "sharding is ddp: add --fsdp"),
        (
            f"train {LLAMA} --gpu H100x8 --framework deepspeed --zero 3 --hpz 3",
            "not divide the world of 8 ranks: hpz can be 1",
        ),
        (f"train {LLAMA} --gpu H100x8 --framework deepspeed --zero 2 --hpz 8", "sharding is zero2: add --zero 3"),
        (f"train {LLAMA} --method lora --targets banana_proj", "unknown adapter target 'banana_proj'"),
        (f"train {LLAMA} --set foo=1", "unknown training option 'foo'"),
        (f"train {LLAMA} --sweep rank=2,4 --plot /tmp/x.bmp", "use one of .png, .svg, .html"),
        (f"train {LLAMA} --sweep rnak=2", "unknown sweep axis 'rnak': did you mean rank?"),
        ("train --layers 4 --hidden 64", "needs --heads too"),
        ("train", "no model: give an id, a path, or a shape"),
        ("models nothing-of-that-name-at-all", "unknown model"),
        ("gpus --at-least 24", "has no unit"),
    ],
)
def test_one_line_and_exit_code_2(command: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run(command.split())
    error = capsys.readouterr().err
    assert message in error
    assert (code, error.count("\n")) == (2, 1)


def test_a_missing_network_is_exit_code_3(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run(["serve", "some-org/some-model-nobody-knows"]) == 3
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err
