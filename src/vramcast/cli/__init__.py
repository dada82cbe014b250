"""The command line: one file per command, loaded only when it is asked for; user mistakes print one line and an exit code.

Exit codes: 0 answered (and it fits, or no GPU was named), 1 it does not fit, 2 the question is wrong, 3 something is missing
(70: a fault of this program).
"""

import gc
import importlib
import os
import signal
import sys
from typing import Any

import click

from vramcast import __version__
from vramcast.errors import VramcastError, nearest, unknown_name
from vramcast.untrusted import printable

# Objects made before each collection: an answer makes tens of thousands that all live until it is printed, and Python's 700 would
# look through them again and again (a tenth of a cold answer, a quarter of the page's).
_COLLECTED = (50_000, 20, 50)

# name: (module, one line for the overview). A test holds this table against the files and the documentation.
COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("serve", "Memory of serving a model: fits or not, how far, and why."),
    "train": ("train", "Memory of a training step, moment by moment: fits or not, how far, and why."),
    "fit": ("fit", "One page per model: every usual way to run and to train it, on your card or on which."),
    "plan": ("plan", "What should I run? Every way on the cards at hand, ranked, with the command to type."),
    "check": ("check", "Will what these files start fit? A line each and an exit code, for CI."),
    "trace": ("trace", "The real training step, or your own script, on fake tensors: every allocation, no GPU."),
    "explain": ("explain", "A memory snapshot or an out-of-memory message: who held the memory, and what would help."),
    "measure": ("measure", "The real step on this machine's GPU, beside the forecast; sweeps that survive a kill."),
    "models": ("models", "What a model is: parameters, sizes by precision, layer map, cache per token."),
    "rules": ("rules", "The rules of thumb with your own numbers: what each says, the exact answer, and why they differ."),
    "utilization": ("utilization", "MFU and HFU from FLOPs, throughput, step time or a training log."),
    "profile": ("profile", "A profiler trace: where the GPU's time went, on which kernels, and what limits."),
    "topology": ("topology", "How a machine's cards are joined; the parallel groups that suggests."),
    "gpus": ("gpus", "The cards: memory as sold and as programs see it, rates, capabilities."),
    "evaluate": ("evaluate", "Forecasts against measured runs: error tables by engine, kind and source."),
    "calibrate": ("calibrate", "This machine's own speed, from its own runs: a profile that later answers name."),
    "web": ("web", "The page and its API, served from this machine: English and Chinese."),
    "mcp": ("mcp", "Tools for assistants (Model Context Protocol): serve, train, plan, explain, read."),
    "doctor": ("doctor", "What is installed here, and what each missing extra would add."),
}

_SPELLINGS = {"utilisation": "utilization"}
_EPILOG = """\b
Examples:
  vramcast serve Qwen/Qwen2.5-7B-Instruct --gpu "RTX 4090"
  vramcast serve meta-llama/Llama-3.3-70B-Instruct --gpu H100x4 --context 128K --concurrency 5
  vramcast train meta-llama/Llama-3.1-8B --gpu H100 --method lora --rank 16 --seq 4096 --checkpointing full
  vramcast models deepseek-ai/DeepSeek-V3
  vramcast llama 3.1 8b on a 4090              a question in a person's words, English or Chinese
  vramcast compose.yml --gpu 4090              a file, pasted text or - alone: what it is, and its answer
  vramcast "vllm serve Qwen/Qwen3-8B --max-model-len 16384" --gpu L4
"""


class LazyCommands(click.Group):
    """A group whose commands are imported when they are run, so that one command costs one import."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"vramcast.cli.{COMMANDS[cmd_name][0]}").command
        if "_VRAMCAST_COMPLETE" in os.environ:
            from vramcast.cli.help.completing import completes

            return completes(command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        args = [_SPELLINGS.get(args[0], args[0]), *args[1:]] if args else args
        if args and args[0] not in COMMANDS and (args[0] == "-" or not args[0].startswith("-")):
            from vramcast.cli.pasted import command_of, is_pasted, joined

            args = joined(args, COMMANDS)
            if not is_pasted(args[0]):
                raise unknown_name("command", args[0], COMMANDS)
            args = command_of(args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from vramcast.language import spoken

        say = spoken()
        with formatter.section(say("help-commands")):
            formatter.write_dl([(name, say(f"help-{name}")) for name in COMMANDS])

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from vramcast.language import spoken

        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(spoken()("help-root"))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from vramcast.cli.help.grouped import write_epilog

        write_epilog(self.epilog, formatter)


@click.command(
    cls=LazyCommands, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="vramcast")
def root() -> None:
    """Forecast what a large language model costs on a GPU, before renting one: memory and fit; every byte named."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit the process with the code of the contract."""
    _stop_on_signals()
    gc.set_threshold(*_COLLECTED)
    sys.exit(run(arguments))


def _stop_on_signals() -> None:
    """SIGTERM and SIGHUP end the program as Ctrl-C does, so that what it opened is closed."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), stop)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; mistakes of the user print one line to standard error."""
    try:
        given = _spoken(sys.argv[1:] if arguments is None else arguments)
        result: Any = root.main(args=given or ["--help"], prog_name="vramcast", standalone_mode=False)
        return int(result or 0)
    except VramcastError as error:
        return _complain(_told(error), error.exit_code)
    except click.NoSuchOption as error:
        return _complain(f"{_no_such_option(error)}{_help_hint(error.ctx)}", 2)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        message = error.format_message().rstrip(".")
        return _complain(f"{message[:1].lower()}{message[1:]}{_help_hint(error.ctx)}", 2)
    except click.ClickException as error:
        return _complain(error.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        return _internal(error)
    finally:
        if "vramcast.language" in sys.modules:
            sys.modules["vramcast.language"].speak(None)


def _spoken(arguments: list[str]) -> list[str]:
    """The words less ``--lang CODE``, which may stand anywhere and sets the language of this run."""
    if not any(word.partition("=")[0] == "--lang" for word in arguments):
        return arguments
    from vramcast.language import LANGUAGES, speak

    left: list[str] = []
    words = iter(arguments)
    for word in words:
        name, equals, code = word.partition("=")
        if name != "--lang":
            left.append(word)
            continue
        code = code if equals else next(words, "")
        if code not in LANGUAGES:
            raise unknown_name("language", code, LANGUAGES)
        speak(code)
    return left


def _told(error: VramcastError) -> str:
    """The message in the language of this run, where the catalogues have it; else as it stands."""
    from vramcast.language import spoken

    return spoken()(error.told[0], **error.told[1]) if error.told else str(error)


def _complain(message: str, code: int) -> int:
    from vramcast.language import spoken

    say = spoken()
    if f"error-{code}" in say.messages:
        message = say(f"error-{code}", text=say.formula(" ".join(message.split())))
    click.echo(f"vramcast: {printable(' '.join(message.split()))}", err=True)
    return code


def _internal(error: Exception) -> int:
    """A fault of this program, not of the question: one line that can be reported, the traceback on demand."""
    if os.environ.get("VRAMCAST_TRACEBACK"):
        raise error
    at = error.__traceback__
    while at and at.tb_next:
        at = at.tb_next
    where = f" at {os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}" if at else ""  # noqa: PTH119
    what = f"{type(error).__name__}: {error}"
    return _complain(f"internal error{where}: {what}; please report it with your command (VRAMCAST_TRACEBACK=1 shows all)", 70)


# What other programs call our flags.
ELSEWHERE = {
    "--batch-size": "--micro-batch",
    "--per-device-train-batch-size": "--micro-batch",
    "--micro-batch-size": "--micro-batch",
    "--batch": "--micro-batch",
    "--lora-r": "--rank",
    "--lora-rank": "--rank",
    "--r": "--rank",
    "--seq-len": "--seq",
    "--max-seq-length": "--seq",
    "--sequence-length": "--seq",
    "--max-length": "--seq",
    "--cutoff-len": "--seq",
    "--gpus": "--gpu NAMExN",
    "--num-gpus": "--gpu NAMExN",
    "--gradient-accumulation-steps": "--accumulate",
    "--grad-accum": "--accumulate",
    "--gradient-checkpointing": "--checkpointing full",
    "--lora-target-modules": "--targets",
    "--optim": "--optimizer",
    "--bf16": "--compute-dtype bfloat16",
    "--fp16": "--compute-dtype float16",
    "--load-in-4bit": "--method qlora",
    "--deepspeed": "--zero N or --from FILE",
    "--config": "--from FILE",
    "--model": "MODEL as the first word",
    "--lora": "--method lora (beside dpo or grpo: --use_peft)",
    "--mixed-precision": "--compute-dtype bfloat16 or float16",
    "--limits": "without a flag: with --gpu the longest sequence and the largest batch stand in every answer",
    "--users": "--micro-batch (users are served: vramcast serve)",
    "--dp": "--gpu NAMExN (data parallel takes the cards that tp, pp and cp leave)",
}


def _no_such_option(error: click.NoSuchOption) -> str:
    """The message with our word for another program's flag, else with the nearest of the command's own."""
    name = error.option_name.replace("_", "-")
    if name in ELSEWHERE:
        return f"no such option {error.option_name}: here it is {ELSEWHERE[name]}"
    known = [flag for option in error.ctx.command.params for flag in option.opts] if error.ctx else []
    near = nearest(name, known, cutoff=0.7)
    return f"no such option {error.option_name}" + (f": did you mean {', '.join(near)}?" if near else "")


def _help_hint(ctx: click.Context | None) -> str:
    return f" (see {ctx.command_path} --help)" if ctx else ""
