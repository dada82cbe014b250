"""What a newcomer types first: names, cards, files and flags are read as people mean them, and pages contradict nothing."""

import msgspec
import pytest

from vramcast import forecast
from vramcast.asking.looking import find_models
from vramcast.cli import run
from vramcast.hardware.accelerator import catalogue
from vramcast.models.inventory import resolved_id
from vramcast.models.reading import read_model
from vramcast.models.reading.known import generation, suggestions
from vramcast.training.forecast import forecast_training
from vramcast.workload import Parallel, Serving, Training

LLAMA = "meta-llama/Llama-3.1-8B"


def said(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command prints, both streams."""
    run(line)
    captured = capsys.readouterr()
    return captured.out + captured.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("llama 2 7b", "meta-llama/Llama-2-7b-hf"),
        ("glm 4.6", "zai-org/glm-4.6"),
        ("通义千问7B", "Qwen/Qwen-7B"),
        ("https://huggingface.co/Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct"),
    ],
)
def test_a_name_is_the_makers_model_and_the_answer_says_what_was_typed(typed: str, meant: str) -> None:
    model = read_model(typed)
    assert resolved_id(model) == meant
    assert model.id == typed


def test_a_glm_without_an_ending_is_not_read_as_the_fp8_upload_it_shares_shapes_with() -> None:
    assert read_model("glm 4.6").quantization is None


@pytest.mark.parametrize(
    ("name", "positions"),
    [("THUDM/glm-4-9b-chat", 131_072), ("mistralai/Mistral-7B-Instruct-v0.2", 32_768), ("Qwen/Qwen2-VL-7B-Instruct", 32_768)],
)
def test_a_config_cut_for_a_small_device_does_not_cut_the_model(name: str, positions: int) -> None:
    assert read_model(name).positions == positions


def test_lists_of_models_begin_with_what_is_known_and_current() -> None:
    names = find_models("qwen")
    assert names[0] == "Qwen/Qwen3.5-9B"
    assert names.index("Qwen/Qwen3-32B") < names.index("Qwen/Qwen-7B")
    assert [generation(n) for n in ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b")] == [2.5, 3.1, 0.0]
    assert suggestions("7B", list(find_models()))[0] == "Qwen/Qwen2.5-7B"


@pytest.mark.parametrize("name", ["compose.yml", "serve.sh", "train.py"])
def test_a_file_that_is_not_there_is_no_unknown_model(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"there is no file '{name}' here" in said(["serve", name], capsys)


@pytest.mark.parametrize("engine", ["llama.cpp", "ollama"])
def test_a_gguf_engine_takes_its_usual_type_where_none_is_named(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["serve", "google/gemma-3-27b-it", "--engine", engine, "--gpu", "3090"], capsys)
    assert "quant = Q4_K_M  what llama.cpp's -hf and Ollama's library take" in text
    assert "quant" not in said(["serve", "openai/gpt-oss-20b", "--engine", engine, "--gpu", "3090"], capsys)


def test_a_card_alone_shows_what_two_beside_each_other_show(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["gpus", "A100"], capsys)
    assert "cloud, USD/h" in text and "FlashAttention 2" in text and "'A100' may also be A100 PCIe 40GB" in text
    assert "bandwidth" not in said(["gpus", "24GB"], capsys), "a size alone has no rates"
    mac = said(["gpus", "M4 Pro 24GB"], capsys)
    assert "nvidia-smi" not in mac and "Apple Apple" not in mac


def test_the_heads_of_a_sweep_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["train", LLAMA, "--sweep", "optimizer=adamw,paged_adamw_8bit", "micro_batch=1..2"], capsys)
    assert "micro_batch=1  micro_batch=2" in text and "\n  paged_adamw_8bit  " in text


def test_a_picture_that_was_written_is_said(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(tmp_path / "a.svg")
    assert f"wrote {file}" in said(["train", LLAMA, "--gpu", "H100", "--method", "lora", "--plot", file], capsys)


def test_one_setting_is_assumed_once(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["train", LLAMA, "--gpu", "V100-32G", "--method", "lora"], capsys)
    assert text.count("\n  attention = ") == 1 and "attention = efficient" in text


def test_bfloat16_that_a_card_emulates_is_slow_and_the_page_says_what_is_not() -> None:
    question = Training(model=LLAMA, gpu="V100-32G", method="lora", seq=512, checkpointing="full")
    slow, fast = forecast(question), forecast(msgspec.structs.replace(question, compute_dtype="float16"))
    assert slow.speed["step_s"] > 3 * fast.speed["step_s"]
    assert any("--compute-dtype float16" in a.because for a in slow.assumed)


@pytest.mark.parametrize(("zero", "there"), [(1, True), (2, False), (3, False)])
def test_with_its_states_on_the_host_deepspeed_keeps_reduced_gradients_there(zero: int, there: bool) -> None:
    question = Training(model=LLAMA, gpus=4, parallel=Parallel(dp=4), zero=zero, offload=("optimizer",), framework="hf_trainer")
    answer = forecast_training(question, model=read_model(LLAMA))
    assert any(term.name == "gradients" and term.bytes > 2**20 for i in answer.worst.instants for term in i.terms) == there


def test_the_verdict_says_what_the_bar_says() -> None:
    card = catalogue()["a100-sxm4-80"].visible_bytes
    for model in ("Qwen/Qwen2.5-7B", "google/gemma-2-9b", "Qwen/Qwen3-30B-A3B"):
        for seq in (512, 2048, 8192):
            answer = forecast(Training(model=model, gpu="A100-80G", method="qlora", seq=seq))
            interval = answer.worst.interval
            assert interval is not None
            assert answer.fit.verdict != "fits" or interval.high_bytes <= card


def test_advice_names_no_crowd_of_cards_and_nothing_that_the_card_refuses() -> None:
    answer = forecast(Training(model="huggyllama/llama-65b", gpu="V100-32G", gpus=4, parallel=Parallel(dp=4), zero=3))
    cards = [int(a.change.split("--gpu ")[1].split()[0].rpartition("x")[2]) for a in answer.advice if "--gpu" in a.change]
    assert cards and max(cards) <= 4 * min(cards)
    served = forecast(Serving(model="huggyllama/llama-65b", gpu="V100-32G", gpus=4, engine="transformers"))
    assert all("awq" not in a.change for a in served.advice)


def test_a_short_model_is_trained_at_its_own_length_where_none_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["train", "gpt2", "--gpu", "3060"], capsys)
    assert "micro-batch 1 x 1,024 tokens" in text and "seq = 1024  positions of the model" in text
    assert run(["train", "gpt2", "--seq", "2048"]) == 2
    assert "longest sequence, this batch      448 tokens" in said(["train", "openai/whisper-large-v3", "--gpu", "3090"], capsys)


def test_unsloth_takes_float16_where_the_card_has_no_bfloat16() -> None:
    free, trainer = (forecast(Training(model=LLAMA, gpu="T4", method="qlora", framework=f)) for f in ("unsloth", "hf_trainer"))
    assert free.speed["step_s"] < trainer.speed["step_s"] / 3


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("train llama-3.3-70b --gpu 2x3090 --method qlora --fsdp 2 --checkpointing full --seq 1024", "--offload parameters"),
        ("train llama-3.1-70b --gpu H100x8 --fsdp 2 --checkpointing full", "--offload parameters"),
        ("train huggyllama/llama-65b --gpu V100-32Gx4 --zero 3 --checkpointing full", "--offload optimizer --offload parameters"),
    ],
)
def test_weights_on_the_host_are_advised_where_shards_are_gathered(
    line: str, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"fits       {change} " in said(line.split(), capsys)


def test_torchtitan_shards_over_context_parallel_ranks() -> None:
    question = Training(model=LLAMA, gpus=8, parallel=Parallel(cp=8), framework="torchtitan", seq=32768)
    answer = forecast_training(question, model=read_model(LLAMA))
    weights = next(t.bytes for t in answer.worst.peak.terms if t.name == "weights")
    assert weights == pytest.approx(8_030_261_248 * 4 / 8, rel=0.01)


def test_four_bit_weights_decode_near_the_bandwidth_of_a_consumer_card() -> None:
    answer = forecast(Serving(model=LLAMA, gpu="3090", quant="awq", context=4096, prompt=1000, output=300))
    assert 5.4e-3 < answer.speed["tpot_s"] < 11e-3, "5.4 ms of bytes; reports are around 8 ms"


def test_a_mac_that_is_full_says_so_in_metals_words(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["serve", "llama-3.3-70b", "--gpu", "M4 Max 128GB", "--quant", "Q8_0", "--no-fit"], capsys)
    assert "error: failed to allocate buffer, size = 40960.00 MiB" in text and "cudaMalloc" not in text


def test_data_parallel_is_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert "here it is --gpu NAMExN" in said(["train", LLAMA, "--dp", "4"], capsys)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["serve", "Qwen/Qwen2.5-7B-Instruct", "--engine", "sglang", "--quant", "Q4_K_M"], "Q4_K_M is a type of GGUF files"),
        (["serve", "Qwen/Qwen2.5-7B-Instruct", "--engine", "llama.cpp", "--quant", "fp8"], "--engine vllm or sglang takes fp8"),
        (["evaluate"], "missing argument 'FILES...' (see vramcast evaluate --help)"),
    ],
)  # fmt: skip
def test_a_type_of_another_kind_of_engine_names_its_engine(
    line: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*line, "--gpu", "4090"] if line[0] == "serve" else line) == 2
    assert told in capsys.readouterr().err


def test_a_task_that_trains_every_weight_assumes_no_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    run(["train", "Qwen/Qwen2.5-7B", "--method", "dpo", "--gpu", "H100"])
    told = capsys.readouterr().out
    assert "dpo (full)" in told and "rank = " not in told


def test_the_cards_of_a_training_table_need_what_the_answer_for_the_card_needs() -> None:
    import vramcast

    table = {row.gpu: row.needed_bytes for row in vramcast.train("Qwen/Qwen2.5-7B").cards if row.gpus == 1}
    assert table["H100 SXM5 80GB"] == vramcast.train("Qwen/Qwen2.5-7B", gpu="H100 SXM5 80GB").worst.needed_bytes
