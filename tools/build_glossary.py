"""Write docs/glossary.md from the words that ``--explain`` knows; ``--check`` only says whether it is current."""

import sys
from pathlib import Path

from vramcast.cli.help.glossary import glossary_page

TARGET = Path(__file__).parents[1] / "docs" / "glossary.md"


def main() -> int:
    """Write the page, or compare it."""
    if "--check" in sys.argv:
        return 0 if TARGET.exists() and TARGET.read_text() == glossary_page() else 1
    TARGET.write_text(glossary_page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
