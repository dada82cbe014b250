"""``vramcast plan``: what to run. Every deployment or training layout on the cards at hand, ranked, with the command to type."""

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from vramcast.cli.help.grouped import CONTEXT, GroupedCommand, group, write_epilog
from vramcast.errors import unknown_name
from vramcast.untrusted import printable

if TYPE_CHECKING:
    from vramcast.planning.plans.serving import ServingPlan
    from vramcast.planning.plans.training import TrainingPlan

_load, _level, _cards, _output = group("Load"), group("What it may take"), group("Cards and engines"), group("Output")

_SERVE_EPILOG = """\b
Examples:
  vramcast plan serve meta-llama/Llama-3.3-70B-Instruct --users 5 --context 128k --gpu H100 --gpu A100-80G@2.10
  vramcast plan serve Qwen/Qwen3-30B-A3B --users 200 --prompt 2k --output 300 --gpu H100x8 --slo ttft=1s,tpot=40ms
  vramcast plan serve Qwen/Qwen3-32B --gpu L40S@0.90 --users 10 --engine vllm --emit kubernetes > server.yaml
  vramcast plan serve openai/gpt-oss-20b --rate 4 --prompt 1500 --output 400       (which card: all that clouds rent)
"""


_EPILOG = """\b
Examples:
  vramcast plan serve meta-llama/Llama-3.3-70B-Instruct --users 5 --context 128k --gpu H100
  vramcast plan train meta-llama/Llama-3.1-70B --gpu H100x256 --seq 8192 --tokens 1T --deadline 60d
  vramcast plan serve --help
"""


class PlanGroup(click.Group):
    """``plan MODEL`` is ``plan serve MODEL``, and says so."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            if get_close_matches(args[0], self.commands, cutoff=0.7):
                raise unknown_name("question of plan", args[0], self.commands)
            from vramcast.language import spoken

            args = ["serve", *args]
            click.echo(spoken()("plain-asked-as", line=printable(shlex.join(["vramcast", "plan", *args]))), err=True)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_epilog(self.epilog, formatter)


@click.group(cls=PlanGroup, context_settings=CONTEXT, epilog=_EPILOG)
def command() -> None:
    """What should I run? Every way to serve or train MODEL on the cards at hand, ranked, with the command to type."""


@command.command(
    "serve",
    short_help="What serves MODEL: engine, weights, layout, replicas, batch.",
    cls=GroupedCommand,
    epilog=_SERVE_EPILOG,
    context_settings=CONTEXT,
)
@click.argument("model")
@_load("--users", "--concurrency", "users", metavar="N", help="Requests alive at once.  [default: 1]")
@_load("--rate", metavar="N", help="Requests a second, arriving at random, instead of --users.")
@_load(
    "--context",
    metavar="TOKENS",
    help="Longest request to allow; every user's cache is held at that length.  [default: prompt + output]",
)
@_load("--prompt", metavar="TOKENS", help="Typical prompt length.  [default: 1024]")
@_load("--output", metavar="TOKENS", help="Typical output length.  [default: 256]")
@_load("--cached", metavar="SHARE", help="Share of each prompt that the prefix cache holds.  [default: 0]")
@_load(
    "--acceptance",
    metavar="SHARES",
    help="Consider the model's own draft layers, of whose tokens this share is accepted, or looking tokens up in the text: "
    "0.8,ngram=0.4.  [default: no drafting]",
)
@_cards("--disagg", is_flag=True, help="Ask prefill and decode on workers of their own too, for the best structures.")
@_load(
    "--workload",
    metavar="FILE",
    help="A log of requests (arrival_s, prompt, output): mean lengths, rate and longest come from it.",
)
@_level("--slo", metavar="TIMES", help="What the mean request must meet, for example ttft=1s,tpot=50ms.")
@_level("--slo-ttft", metavar="TIME", help="Most time to the first token: 1s, 800ms.")
@_level("--slo-tpot", metavar="TIME", help="Most time for each token after it: 50ms.")
@_level("--bits", metavar="N", help="Fewest bits of weights and cache to consider: 16, 8 or 4.  [default: 4]")
@_level("--by", metavar="ORDER", help="What is best: cost (a million tokens), speed (of a request) or cards.  [default: cost]")
@_cards(
    "--gpu",
    multiple=True,
    metavar="NAME[xN][@PRICE]",
    help="A card to choose from, at most how many, dollars an hour for one; may be repeated.  [default: any that clouds rent]",
)
@_cards("--most-gpus", metavar="N", help="Most cards of one kind, where --gpu says no number.  [default: 32]")
@_cards(
    "--engine", multiple=True, metavar="NAME", help="Engines allowed; may be repeated.  [default: vllm, sglang, tensorrt_llm]"
)
@_output(
    "--emit", metavar="KIND", help="Print only what starts the best one: line, compose or kubernetes; workers (with --disagg)."
)
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def serve(**given: Any) -> int:
    """Rank the deployments of MODEL: engine, weights, layout, replicas, batch and chunk, on the cards offered."""
    from vramcast.asking.plan import PlanServeWords, plan_serve
    from vramcast.cli.progress import progress

    words = {name: given[name] for name in PlanServeWords.__annotations__ if given.get(name) not in (None, (), False)}
    with progress("structures", quiet=given["as_json"]) as watch:
        plan = plan_serve(given["model"], watch=watch, **words)
    return _answered(plan, given)


_TRAIN_EPILOG = """\b
Examples:
  vramcast plan train meta-llama/Llama-3.1-70B --gpu H100x256 --seq 8192 --batch 512 --tokens 1T --deadline 60d
  vramcast plan train Qwen/Qwen3-30B-A3B --gpu H100x64@2.50 --seq 4096 --tokens 100B --budget 50k --by cost
  vramcast plan train meta-llama/Llama-3.1-8B --gpu H100x16 --seq 8192 --emit torchtitan > run.toml
  vramcast plan train Qwen/Qwen2.5-7B --gpu any --method lora --samples 20k --by cost      (which card, at what cost)
  vramcast plan train meta-llama/Llama-3.1-8B --gpu 4090x4 --method qlora --samples 50k --epochs 3 --seq 2048
"""
_run, _limits, _how = group("Run"), group("What it may take"), group("Cards and frameworks")


@command.command(
    "train",
    short_help="What trains MODEL: parallel axes, sharding, batch, recomputation.",
    cls=GroupedCommand,
    epilog=_TRAIN_EPILOG,
    context_settings=CONTEXT,
)
@click.argument("model")
@_run("--method", help="full (or pretrain), lora or qlora.  [default: full]")
@_run("--rank", type=int, metavar="N", help="Rank of the adapter.")
@_run("--optimizer", help="adamw, adamw_8bit, muon ...; the framework's own when absent.")
@_run("--seq", metavar="TOKENS", help="Tokens of a sequence.  [default: 4096]")
@_run("--batch", metavar="N", help="Sequences of an optimizer step over all cards.  [default: 1M tokens; 64 for adapters]")
@_run("--tokens", metavar="N", help="Tokens of the whole run: 1T, 300B.")
@_run("--samples", metavar="N", help="Sequences of one epoch, instead of --tokens.")
@_run("--epochs", metavar="N", help="Epochs over --samples.  [default: 1]")
@_limits("--deadline", metavar="TIME", help="Most time the run may take: 30d, 12h.")
@_limits("--budget", metavar="USD", help="Most money the run may cost: 50k.")
@_limits("--by", metavar="ORDER", help="What is best: time, cost or cards.  [default: time]")
@_how(
    "--gpu", multiple=True, metavar="NAMExN[@PRICE]", help="Cards: at most so many, and every halving; any: all that clouds rent."
)
@_how("--framework", multiple=True, metavar="NAME", help="Frameworks allowed.  [default: torchtitan and megatron; hf_trainer]")
@_how("--offload", is_flag=True, help="Consider the optimizer's states in host memory.")
@_output(
    "--emit",
    metavar="KIND",
    help="Print only the best one's configuration: torchtitan, megatron, accelerate, deepspeed, axolotl or llama_factory.",
)
@_output("--json", "as_json", is_flag=True, help="Print one JSON object.")
def train(**given: Any) -> int:
    """Rank the layouts that train MODEL: parallel axes, sharding, recomputation and micro-batch, on the cards offered."""
    from vramcast.asking.plan_training import PlanTrainWords, plan_train
    from vramcast.cli.progress import progress

    words = {name: given[name] for name in PlanTrainWords.__annotations__ if given.get(name) not in (None, (), False)}
    if given["emit"] and not given["framework"]:
        from vramcast.writing.training.files import framework_for

        words["framework"] = framework_for(given["emit"])
    with progress("structures", quiet=given["as_json"]) as watch:
        plan = plan_train(given["model"], watch=watch, **words)
    return _answered(plan, given)


def _answered(plan: "ServingPlan | TrainingPlan", given: dict[str, Any]) -> int:
    """What was asked for of a plan: what starts the best one, the object, or the page; 1 where nothing does the job."""
    if given["emit"]:
        from vramcast.cli.plan_emitted import emit

        return emit(plan, given["emit"])
    if given["as_json"]:
        from vramcast.cli.plan_json import print_plan

        print_plan(plan)
    else:
        plan.page().show()
    return 0 if plan.ranked and plan.meets else 1
