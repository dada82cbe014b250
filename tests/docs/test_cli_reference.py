"""The command reference is generated from --help and current."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("build_cli_reference", ROOT / "tools" / "build_cli_reference.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "docs" / "cli.md").read_text() == tool.reference(), "run: python tools/build_cli_reference.py"


def test_the_glossary_is_current() -> None:
    from vramcast.cli.help.glossary import glossary_page

    page = Path(__file__).parents[2] / "docs" / "glossary.md"
    assert page.read_text() == glossary_page(), "run tools/build_glossary.py"


def test_the_reference_of_the_tools_json_is_current() -> None:
    spec = importlib.util.spec_from_file_location("build_json_reference", ROOT / "tools" / "build_json_reference.py")
    assert spec and spec.loader
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert (ROOT / "docs" / "json-tools.md").read_text() == tool.reference(), "run: python tools/build_json_reference.py"
