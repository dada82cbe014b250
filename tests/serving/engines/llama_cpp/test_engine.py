"""llama.cpp, ik_llama.cpp and Ollama answer, and refuse what the programs refuse."""

import msgspec
import pytest

from vramcast.errors import QuestionError, UnmodelledError
from vramcast.models.inventory import Stored
from vramcast.serving.engines.base import answer_of
from vramcast.serving.engines.llama_cpp import ollama
from vramcast.serving.engines.llama_cpp.answer import process_of
from vramcast.units import GiB
from vramcast.workload import Serving

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
GEMMA = "google/gemma-3-27b-it"


def ask(model: str = LLAMA, **fields: object):
    defaults = {"engine": "llama_cpp", "quant": "Q4_K_M", "context": 8192, "gpu": "RTX 3090"}
    return answer_of(Serving(model=model, **(defaults | fields)))


def test_every_term_is_named_and_sums_to_the_device() -> None:
    rank = ask().ranks[0]
    assert [t.name for t in rank.peak.terms] == ["weights", "kv_cache", "activations", "context"]
    assert rank.device_bytes == sum(t.bytes for t in rank.peak.terms)


@pytest.mark.parametrize(("slots", "expected"), [(1, 10.61), (4, 11.83)])
def test_gemma_3_cache_follows_its_windows(slots: int, expected: float) -> None:
    answer = ask(GEMMA, context=131_072, gpu=None, options={"n_parallel": slots, "kv_unified": True})
    assert answer.cache.pool_bytes / GiB == pytest.approx(expected, abs=0.01)


def test_full_windows_cost_the_whole_context() -> None:
    answer = ask(GEMMA, context=131_072, gpu=None, options={"n_parallel": 1, "swa_full": True})
    assert answer.cache.pool_bytes == 62 * 8192 * 131_072


def test_separate_streams_divide_the_context() -> None:
    answer = ask(options={"n_parallel": 3, "kv_unified": False})
    assert answer.cache.tokens == 3 * 2816


def test_the_mask_is_in_half_precision_from_b9430_on() -> None:
    """Before, a step's mask over the cells was in float32 on the card, and its float16 beside it."""
    old, new = (
        next(t.bytes for t in ask(engine_version=build, context=131_072, options={"n_parallel": 1}).ranks[0].peak.terms
             if t.name == "activations")
        for build in ("b9429", "b9430")
    )  # fmt: skip
    assert old > 131_072 * 512 * (4 + 2) > new > 131_072 * 512 * 2


def test_quantised_values_need_flash_attention() -> None:
    with pytest.raises(QuestionError, match="cache_type_v q8_0 needs flash attention: add flash_attn=true or keep f16 values"):
        ask(options={"cache_type_v": "q8_0", "flash_attn": False})


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(QuestionError, match="unknown llama_cpp option 'n_ubach': did you mean n_ubatch"):
        ask(options={"n_ubach": 512})


def test_a_version_that_is_not_a_build_is_refused() -> None:
    with pytest.raises(QuestionError, match=r"is not a build: write for example llama\.cpp==b9849"):
        ask(engine_version="latest")


def test_what_does_not_fit_fails_at_the_first_buffer_too_large() -> None:
    whole = ask("meta-llama/Llama-3.1-70B-Instruct", options={"fit": False})
    assert "cudaMalloc failed: out of memory" in whole.start_error


def test_the_longest_context_fits_and_one_step_more_does_not() -> None:
    longest = ask(gpu="RTX 3060", quant="Q6_K", options={"fit": False}).max_context
    assert not ask(gpu="RTX 3060", quant="Q6_K", context=longest, options={"fit": False}).start_error
    assert ask(gpu="RTX 3060", quant="Q6_K", context=longest + 4096, options={"fit": False}).start_error
    fitted = ask(gpu="RTX 3060", quant="Q6_K").max_context
    assert ask(gpu="RTX 3060", quant="Q6_K", context=fitted).left is None
    assert ask(gpu="RTX 3060", quant="Q6_K", context=fitted + 256).left is not None


def test_layers_left_on_the_host_leave_its_memory_alone() -> None:
    half, whole = ask(options={"n_gpu_layers": 16}), ask()
    assert half.ranks[0].peak.terms[0].bytes < whole.ranks[0].peak.terms[0].bytes / 2 + GiB
    assert half.ranks[0].peak.terms[1].bytes == 15 * whole.ranks[0].peak.terms[1].bytes // 32


def test_ollama_chooses_context_and_batch_by_memory() -> None:
    resolved = ask(engine="ollama", context=None).resolved
    assert (resolved.context, resolved.options["n_ubatch"]) == (32_768, 1024)
    assert ollama.default_context(80 * GiB) == 262_144


def test_ollama_predicts_more_than_it_takes_for_windows() -> None:
    answer = ask(GEMMA, engine="ollama", context=32_768, gpu=None)
    predicted = ollama.predicted_bytes(answer.resolved.model, 16 * GiB, 32_768)
    assert predicted - 16 * GiB > answer.cache.pool_bytes


def test_fit_shortens_the_context_it_was_not_given() -> None:
    answer = ask(context=None, options={"fit": True, "n_parallel": 1}, gpu="RTX 3060")
    assert 4096 < answer.resolved.context < 131_072
    assert any(a.name == "context" and a.because.startswith("--fit") for a in answer.resolved.assumed)
    assert not answer.start_error


def test_fit_takes_layers_off_the_gpu_when_the_context_is_asked() -> None:
    answer = ask("meta-llama/Llama-3.1-70B-Instruct", options={"fit": True})
    assert 20 < answer.resolved.options["n_gpu_layers"] < 60
    assert not answer.start_error


def test_fit_leaves_experts_of_the_last_layers_on_the_host() -> None:
    answer = ask("Qwen/Qwen3-30B-A3B", options={"fit": True}, gpu="RTX 3060")
    kept = answer.resolved.options["override_tensor"]
    assert 0 < len(kept) < 48
    assert kept[-1].startswith("blk\\.47\\.")
    assert not answer.start_error


def test_fit_changes_nothing_that_fits() -> None:
    assert ask(options={"fit": True}).resolved.options["n_gpu_layers"] == 33


def test_ollama_shows_its_own_prediction_beside_the_forecast() -> None:
    answer = ask(engine="ollama")
    assert any(a.name == "ollama_predicted_bytes" for a in answer.resolved.assumed)


def test_a_file_header_is_exact_where_rules_would_guess() -> None:
    plain = ask(gpu=None)
    parts = process_of(plain.resolved, "llama_cpp").parts
    stored = tuple(Stored(p.name, "q8_0" if "ffn_up" in p.name else p.kind, (p.elements // 4096, 4096), p.bytes) for p in parts)
    model = msgspec.structs.replace(plain.resolved.model, stored=stored)
    question = Serving(model=LLAMA, engine="llama_cpp", context=8192)
    held = answer_of(question, model=model).ranks[0].peak.terms[0].bytes
    richer = 32 * 14336 * 4096 // 256 * (272 - 144)
    assert held == plain.ranks[0].peak.terms[0].bytes + richer


def test_counts_of_types_place_a_hand_made_mix() -> None:
    counts = {"f32": 65, "q8_0": 2, "q6_K": 128, "iq4_k": 32, "iq3_k": 64}
    parts = process_of(ask(gpu=None, options={"tensor_types": counts}).resolved, "llama_cpp").parts
    kinds = {p.name: p.kind for p in parts}
    assert (kinds["output.weight"], kinds["blk.3.attn_q.weight"]) == ("q8_0", "q6_k")
    with pytest.raises(UnmodelledError, match="this mix varies by layer; read the file's header"):
        ask(gpu=None, options={"tensor_types": {"f32": 65, "q8_0": 7, "q6_K": 219}})


def test_experts_interleaved_at_load_stay_on_the_host_unless_a_kernel_is_known() -> None:
    def compute(quant: str, repack: bool) -> int:
        options = {"n_ubatch": 2048, "cpu_moe": True, "fused_moe": True, "flash_attn": True, "run_time_repack": repack}
        return ask("Qwen/Qwen3-235B-A22B", engine="ik_llama_cpp", quant=quant, options=options).ranks[0].peak.terms[2].bytes

    assert compute("Q8_0", True) < compute("Q8_0", False)
    assert compute("IQ3_K", True) == compute("IQ3_K", False)


@pytest.mark.parametrize(("build", "mib"), [("b9849", 44_928), (None, 44_928 + 2688)])
def test_layers_with_a_sparse_indexer_keep_its_keys(build: str | None, mib: int) -> None:
    """GLM-5.2 at 524,288 tokens: 78 layers of latents, and 21 that pick tokens for the others."""
    fields = {"context": 524_288, "gpu": None, "quant": None, "engine_version": build, "options": {"n_parallel": 1}}
    assert ask("zai-org/GLM-5.2", **fields).cache.pool_bytes == mib * 2**20
