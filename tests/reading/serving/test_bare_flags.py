"""Flags without their program: lists of an operator, arrays of a script, presets, templates, batch files, PowerShell."""

import pytest

from vramcast.reading.kinds import kinds_of, taken_for
from vramcast.reading.serving.bare_flags import engine_of_bare_flags
from vramcast.reading.serving.files import find_launches
from vramcast.reading.serving.flags import parsed_flags
from vramcast.reading.serving.launch import Launch


def one(text: str, name: str) -> Launch:
    (launch,) = find_launches(text, name).launches
    return launch


def test_engine_by_flags_of_its_own() -> None:
    assert engine_of_bare_flags(["--max-model-len", "8192", "--max-num-seqs", "4"]) == "vllm"
    assert engine_of_bare_flags(["--mem-fraction-static", "0.8", "--chunked-prefill-size", "4096"]) == "sglang"
    assert engine_of_bare_flags(["-ngl", "99", "-c", "8192", "-ctk", "q8_0"]) == "llama_cpp"


def test_flags_of_several_engines_decide_nothing() -> None:
    assert engine_of_bare_flags(["--dtype", "bfloat16", "--quantization", "awq"]) == ""
    assert engine_of_bare_flags(["--dtype", "bfloat16", "--quantization", "awq"], "spec.vllmArgs") == "vllm"
    assert engine_of_bare_flags(["--verbose", "--port", "80"], "vllm") == ""


OPERATOR = """
apiVersion: models.example.org/v1
kind: ServedModel
metadata: {name: chat}
spec:
  model: {name: "Qwen/Qwen3-8B"}
  serving:
    tensorParallelism: 2
    vllmArgs: ["--max-model-len", "8192", "--quantization", "fp8"]
  nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
"""


def test_resource_of_an_operator() -> None:
    launch = one(OPERATOR, "model.yaml")
    assert (launch.engine, launch.model, launch.card) == ("vllm", "Qwen/Qwen3-8B", "L4")
    flags = {flag.name: flag.value for flag in parsed_flags("vllm", launch.flags).flags}
    assert flags == {"max-model-len": "8192", "quantization": "fp8", "tensor-parallel-size": "2"}


def test_array_that_another_script_starts() -> None:
    text = "MODEL=openai/gpt-oss-20b\nSERVE_ARGS=(\n  --max-model-len 8192  # short\n  --max-num-seqs 4\n)\nMODS=()\n"
    launch = one(text, "gpt.env")
    assert (launch.model, launch.flags) == ("openai/gpt-oss-20b", ("--max-model-len", "8192", "--max-num-seqs", "4"))


def test_array_of_another_program_is_no_launch() -> None:
    assert not find_launches("MODEL=a/b\nARGS=(--learning-rate 1 --epochs 3)\n", "a.sh").launches


def test_presets_with_common_section() -> None:
    text = "[*]\nngl = 99\nfa = on\n\n[small]\nmodel = /models/a.gguf\nc = 8192\n\n[large]\nhf = org/b-GGUF:Q4_K_M\nngl = 20\n"
    small, large = find_launches(text, "models.ini").launches
    assert small.name == "small" and parsed_flags("llama_cpp", small.flags).flags[0].name == "n-gpu-layers"
    assert {f.name: f.value for f in parsed_flags("llama_cpp", small.flags).flags}["ctx-size"] == "8192"
    assert {f.name: f.value for f in parsed_flags("llama_cpp", large.flags).flags}["n-gpu-layers"] == "20"


def test_ini_of_something_else() -> None:
    assert not find_launches("[server]\nport = 80\nname = x\n", "other.ini").launches


def test_jinja_template_of_a_compose_file() -> None:
    text = (
        "services:\n{% for m in models %}\n  vllm-{{ m.name | lower }}:\n    image: {{ image }}:{{ tag }}\n    command: >\n"
        "      --model {{ m.path }}\n      --max-model-len {{ m.max_model_len | default(4096) }}\n"
        "{% if prefix | default(true) %}\n      --enable-prefix-caching\n{% endif %}\n{% endfor %}\n"
    )
    launch = one(text, "docker-compose.yml.j2")
    assert launch.engine == "vllm" and "4096" in launch.flags and "--enable-prefix-caching" in launch.flags
    assert launch.model == "${path}"


def test_batch_file() -> None:
    text = (
        "@echo off\r\nset EXE=%~dp0bin\\llama-server.exe\r\nset PORT=8080\r\n"
        'if not exist "%EXE%" (\r\n  echo no\r\n  exit /b 1\r\n)\r\nset "CTX=16384"\r\n'
        '"%EXE%" -m models\\a.gguf --port %PORT% ^\r\n  -ngl 99 -c %CTX%\r\n'
    )
    launch = one(text, "run.bat")
    assert (launch.engine, launch.model) == ("llama_cpp", "models/a.gguf")
    assert launch.flags[-2:] == ("-c", "16384")


POWERSHELL = """param(
  [string]$Model = "C:/m/a.gguf",
  [int]$Ctx = 8192
)
$exe = "C:/llama/llama-server.exe"
$layers = Get-Setting -Name "LAYERS" -DefaultValue "40"
$flash = "1"
$words = @(
  "-m", $Model,
  "-c", $Ctx,
  "-ngl", $layers
)
if ($flash -eq "1") {
  $words += @("--flash-attn", "on")
}
if ($unknown) {
  $words += @("--mlock")
}
if (-not (Test-Path $exe)) {
  throw "missing"
}
Write-Host "starting -c 1"
& $exe @words
"""


def test_powershell() -> None:
    launch = one(POWERSHELL, "start.ps1")
    flags = {flag.name: flag.value for flag in parsed_flags("llama_cpp", launch.flags).flags}
    assert launch.model == "C:/m/a.gguf"
    assert (flags["ctx-size"], flags["n-gpu-layers"], flags["flash-attn"]) == ("8192", "40", "on")


DOCKERFILE = """FROM vllm/vllm-openai:v0.11.0
RUN cat <<EOF >/start.sh
#!/bin/sh
exec python3 -m vllm.entrypoints.openai.api_server "\\$@"
EOF
ENTRYPOINT ["/start.sh"]
CMD ["--model", "/model", "--gpu-memory-utilization", "0.92"]
"""


def test_script_that_a_dockerfile_writes() -> None:
    launch = one(DOCKERFILE, "Dockerfile")
    assert (launch.model, launch.flags, launch.version) == ("/model", ("--gpu-memory-utilization", "0.92"), "0.11.0")


def test_stack_with_one_model_as_a_mapping() -> None:
    text = (
        "servingEngineSpec:\n  modelSpec:\n    repository: vllm/vllm-openai\n    modelURL: s3://bucket/Qwen3-8B\n"
        "    vllmConfig: {gpuMemoryUtilization: '0.9', extraArgs: ['--max-num-seqs', '16']}\n"
    )
    launch = one(text, "values.yaml")
    assert launch.model.endswith("Qwen3-8B") and launch.flags[-2:] == ("--max-num-seqs", "16")


def test_server_of_ollama_with_nothing_said() -> None:
    text = "services:\n  llm:\n    image: ollama/ollama:0.5.4\n  ui:\n    image: ghcr.io/open-webui/open-webui\n"
    launch = one(text, "compose.yml")
    assert (launch.engine, launch.model) == ("ollama", "")


def test_script_that_asks_nvidia_smi_is_no_report_of_it() -> None:
    text = (
        '#!/bin/bash\nnvidia-smi --query-gpu=index,name,memory.total --format=csv,noheader\nexec vllm serve org/model-7b "$@"\n'
    )
    kind = taken_for(kinds_of(text.encode(), "entrypoint.sh"))
    assert kind is not None and kind.command == ("serve", "--from")


@pytest.mark.parametrize(
    ("words", "alone"),
    [
        (["--limit-mm-per-prompt.video", "0"], False),
        (["--limit-mm-per-prompt", '{"video": 0}'], False),
        (["--limit-mm-per-prompt", '{"image": 0, "video": 0}'], True),
        (["--limit-mm-per-prompt.image", "0", "--limit-mm-per-prompt.video", "0"], True),
        (["--limit-mm-per-prompt.image", "0", "--limit-mm-per-prompt.video", "1"], False),
    ],
)
def test_no_tower_only_where_no_image_is_taken(words: list[str], alone: bool) -> None:
    assert ("language-model-only" in {flag.name for flag in parsed_flags("vllm", words).flags}) is alone


def test_json_of_a_program_is_told() -> None:
    text = (
        'import json, subprocess\nsubprocess.run(["vllm", "serve", "org/m", "--limit-mm-per-prompt", json.dumps({"image": 2})])\n'
    )
    assert "2" in one(text, "serve.py").flags


def test_variable_that_holds_flags() -> None:
    launch = one("VLLM_MODEL=org/m-8b\nVLLM_ARGS=--max-model-len 8192 --gpu-memory-utilization 0.95\nDISK=50\n", ".env.example")
    assert (launch.engine, launch.model, launch.flags[1]) == ("vllm", "org/m-8b", "8192")


def test_properties_of_djl() -> None:
    text = (
        "engine=Python\noption.model_id=org/m-8b\noption.rolling_batch=vllm\noption.tensor_parallel_degree=4\n"
        "option.max_rolling_batch_size=64  # seats\noption.max_model_len=8192\n"
    )
    launch = one(text, "serving.properties")
    flags = {flag.name: flag.value for flag in parsed_flags("vllm", launch.flags).flags}
    assert (launch.engine, launch.model) == ("vllm", "org/m-8b")
    assert flags == {"tensor-parallel-size": "4", "max-num-seqs": "64", "max-model-len": "8192"}


def test_macro_of_llama_swap_that_no_shell_could_name() -> None:
    text = "macros:\n  the-llama: >\n    llama-server\n    --port 1\nmodels:\n  a:\n    cmd: ${the-llama} -hf org/a-GGUF -c 0\n"
    assert one(text, "config.yaml").model == "org/a-GGUF"


def test_script_written_by_echo() -> None:
    text = (
        "FROM nvidia/cuda:12.4.0\nENV MODEL_NAME=org/m-1b\n"
        "RUN echo '#!/bin/bash\\n\\\nMODEL=${MODEL_NAME:-x}\\n\\\n"
        'vllm serve \\\n    "$MODEL" \\\n    --max-model-len 2048\\n\' > /app/start.sh\nCMD ["/app/start.sh"]\n'
    )
    launch = one(text, "Dockerfile")
    assert (launch.model, launch.flags) == ("org/m-1b", ("--max-model-len", "2048"))


def test_flags_of_the_script_itself_stand_at_their_defaults() -> None:
    text = (
        '#!/bin/bash\nMODEL=org/m-1b\nLEN=2048\nwhile true; do\n  case "$1" in\n    -m|--model) MODEL="$2"; shift 2 ;;\n'
        '    --len) LEN="$2"; shift 2 ;;\n    --) shift; break ;;\n    *) break ;;\n  esac\ndone\n'
        'exec vllm serve "$MODEL" --max-model-len "$LEN"\n'
    )
    launch = one(text, "start.sh")
    assert (launch.model, launch.flags) == ("org/m-1b", ("--max-model-len", "2048"))


def test_presets_of_a_case_in_a_folder_that_is_open() -> None:
    text = (
        'run() {\n  case "$1" in\n    a)\n      MODEL="$DIR/a-1b"; CTX=1024\n      ;;\n'
        '    b)\n      MODEL="$DIR/b-1b"; CTX=2048\n      ;;\n'
        '  esac\n}\nrun "$PRESET"\npython -m sglang.launch_server --model-path "$MODEL" --context-length "$CTX"\n'
    )
    found = find_launches(text, "launch.sh").launches
    assert [(launch.model, launch.flags[-1]) for launch in found] == [("${DIR}/a-1b", "1024"), ("${DIR}/b-1b", "2048")]


def test_image_and_model_that_variables_name() -> None:
    text = (
        'ARGS=("run" "--gpus" "all")\nARGS+=("$IMAGE")\nARGS+=(\n  "$REPO"\n  "--dtype" "bfloat16" # as published\n'
        '  "--max-model-len" "8192"\n  "--gpu-memory-utilization" "0.9"\n  "--enable-auto-tool-choice"\n)\ndocker "${ARGS[@]}"\n'
    )
    launch = one(text, "start.sh")
    assert (launch.engine, launch.model) == ("vllm", "${REPO}")


def test_word_of_flash_attention_that_is_open() -> None:
    launch = one('llama-server -m a.gguf --flash-attn "$FA" -c 8192\n', "start.sh")
    assert "FA" in launch.opened


@pytest.mark.parametrize(
    ("task", "runner"), [("embed", "pooling"), ("score", "pooling"), ("generate", "generate"), ("auto", "auto")]
)
def test_a_task_is_a_runner(task: str, runner: str) -> None:
    (flag,) = parsed_flags("vllm", ["--task", task]).flags
    assert (flag.name, flag.value) == ("runner", runner)
