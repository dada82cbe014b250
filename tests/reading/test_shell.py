"""A shell's words without a shell: quotes, variables, arrays, branches, here-documents; what is open stays open."""

import pytest

from vramcast.errors import QuestionError
from vramcast.reading.shell import ShellStart, read_script_text


def _last(text: str, **around: object) -> tuple[str, ...]:
    return read_script_text(text, ShellStart(**around)).lines[-1].words  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("run 'a b' \"c d\" e\\ f", ("run", "a b", "c d", "e f")),
        ("A=1\nrun $A ${A} ${B:-2} ${A:+3} '$A' \"x$A\"", ("run", "1", "1", "2", "3", "$A", "x1")),
        ("A='--x 1'\nrun $A \"$A\"", ("run", "--x", "1", "--x 1")),
        ("run $NOT_SET", ("run", "${NOT_SET}")),
        ("run $((2 * 3 + 1))", ("run", "7")),
        ("X=(a 'b c')\nX+=(d)\nrun \"${X[@]}\"", ("run", "a", "b c", "d")),
        ("run \"{\\\"a\\\": 1}\" > log 2>&1", ("run", '{"a": 1}')),
        ("run a \\\n  b # c\n", ("run", "a", "b")),
        ("run <model> --x", ("run", "${model}", "--x")),
        ("if [ \"$A\" -gt 1 ]; then\nX=1\nelse\nX=2\nfi\nrun $X", ("run", "${A}")),
        ("A=3\nif [ \"$A\" -gt 1 ]; then\nX=1\nelse\nX=2\nfi\nrun $X", ("run", "1")),
        ("if [[ -z \"$A\" ]]; then X=1; else X=2; fi\nrun $X", ("run", "1")),
        ("A=b\ncase \"$A\" in\n  a|c) X=1 ;;\n  b*) X=2 ;;\nesac\nrun $X", ("run", "2")),
        ("run $(nproc --all) `date`", ("run", "${output_of_nproc}", "${output_of_a_command}")),
        ("exec run a\nrun b", ("run", "a")),
        ("run $((2 * N))", ("run", "${N}")),
        ("run $(expr 16 / 4)", ("run", "4")),
        ("N=$(expr 16 / 8)\nrun $N", ("run", "2")),
        ("B=$(command -v llama-server)\nrun $B", ("run", "llama-server")),
        ("N=90\n[ \"$N\" -gt 64 ] && N=64\nrun $N", ("run", "64")),
        ("N=9\n[ \"$N\" -gt 64 ] && N=64\nrun $N", ("run", "9")),
        ("N=9\n[[ -n \"$N\" ]] || N=1\nrun $N", ("run", "9")),
        ("[ \"$M\" = a ] && N=64\nrun $N", ("run", "${M}")),
        ("X=(a b)\nif [ \"$M\" = a ]; then\nX+=(c)\nfi\nrun \"${X[@]}\"", ("run", "a", "b", "${M}")),
        ("read -r -d '' W <<EOF\na \\\n  b\nEOF\nrun $W", ("run", "a", "b")),
        ("case $1 in\n  a)\n    run x \\\n      y\n    ;;\nesac", ("run", "x", "y")),
        ("A=1; if [ -n \"${B:-}\" ]; then A=2; fi; exec run $A", ("run", "1")),
        ("f() {\n  local m=$1 n=${2:-4}\n  run $m $n\n}\nf a", ("run", "a", "4")),
        ("function f { run \"$@\"; }\nf a 'b c'", ("run", "a", "b c")),
        ("f() { shift; run $1; return 0; run never; }\nf a b", ("run", "b")),
        ("f() {\n  run $X\n}\nX=3", ("run", "3")),
        ("IFS=',' read -r A B <<< \"8,1,2\"\nrun $A $B", ("run", "8", "1,2")),
        ("IFS=: read -ra P <<< a:b\nrun ${P[1]} ${P[0]}", ("run", "b", "a")),
        ("declare -A M=([a]=x [b]=y)\nK=b\nrun ${M[a]} ${M[$K]}", ("run", "x", "y")),
        ("declare -A M\nM[a]=x\nfor k in \"${!M[@]}\"; do\n  run $k ${M[$k]}\ndone", ("run", "a", "x")),
        ("M=org/name.gguf\nrun ${M##*/} ${M%.gguf} ${M/name/other} ${M%%/*}",
         ("run", "name.gguf", "org/name", "org/other.gguf", "org")),
        ("M=org/name\nrun $(basename $M) $(dirname \"$M\")", ("run", "name", "org")),
        ("X=Y\nY=3\nrun ${!X}", ("run", "3")),
        ("G=(0 1 2)\nX=abcd\nrun ${#G[@]} ${#X} $#", ("run", "3", "4", "0")),
        ("N=8\nB=4\nrun $((128 / (B * N))) $((2 + 3 * 4)) $(((2 + 3) * 4 % 7)) $((9 / (B * Z)))",
         ("run", "4", "14", "6", "${Z}")),
        ("if pgrep x; then\n  exit 0\nfi\n[ -f done ] && exit\nrun a", ("run", "a")),
        ("A=$(date) run a\nB=$(date)", ("run", "a")),
        ("T=1\nwhile getopts 't:' o; do\n  case $o in t) T=$OPTARG;; esac\ndone\nrun $T", ("run", "1")),
        ("for x in \"$@\"; do\n  run never\ndone\nrun b", ("run", "b")),
        ("for i in {1..9}; do\n  run $i\ndone", ("run", "${i}")),
    ],
)  # fmt: skip
def test_words(text: str, words: tuple[str, ...]) -> None:
    found = _last(text)
    assert found[found.index("run") :] == words


def test_given_variables_stand_and_arguments_are_words() -> None:
    assert _last("A=1\nrun $A", given={"A": "9"}) == ("run", "9")
    assert _last("A=1\nrun $A", environment={"A": "9"}) == ("run", "1")
    assert _last('run "$@" $1', arguments=("x y", "z")) == ("run", "x y", "z", "x", "y")


def test_exported_variables_alone_are_the_environment() -> None:
    script = read_script_text("A=1\nexport B=2\nC=3\nexport C\nD=4 run\nset -a\nE=5\nrun")
    assert script.lines[0].environment == {"B": "2", "C": "3", "D": "4"}
    assert script.lines[-1].environment == {"B": "2", "C": "3", "E": "5"}


def test_here_documents_are_files_with_variables_filled_in() -> None:
    script = read_script_text("A=1\nF=a.yml\ncat > $F <<EOF\nx: $A\nEOF\ncat <<'EOF' >> $F\ny: $A\nEOF\n")
    assert script.files == {"a.yml": "x: 1\ny: $A"}


def test_variables_without_end_are_refused() -> None:
    with pytest.raises(QuestionError, match=r"the script's variables write out more than"):
        read_script_text("A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A$A$A\n" * 6 + "run $A")


def test_comments_are_no_commands() -> None:
    assert [line.words for line in read_script_text("# run a\n$ run b\n  # run c\nrun d # e").lines] == [
        ("run", "b"),
        ("run", "d"),
    ]


def test_a_loop_runs_for_each_word_that_it_names() -> None:
    script = read_script_text('L=(a b)\nfor x in "${L[@]}" c; do\n  for n in 1 2; do run $x $n; done\ndone')
    assert [line.words[1:] for line in script.lines] == [(x, n) for x in "abc" for n in "12"]


def test_functions_that_call_themselves_end() -> None:
    assert len(read_script_text("f() { run; f; f; }\nf").lines) < 4_001


def test_scripts_inside_scripts_are_read_where_a_shell_reads_them() -> None:
    assert ("run", "2") in [line.words for line in read_script_text("N=2\nssh host <<EOF\nrun $N\nEOF\n").lines]
    assert read_script_text("python3 - <<'PY'\nimport vllm\nPY\n").programs == ("import vllm",)
    assert read_script_text("kubectl apply -f - <<EOF\nkind: Pod\nEOF\n").files == {"stdin.yaml": "kind: Pod"}
