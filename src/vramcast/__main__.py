"""``python -m vramcast``, and the command that pip installs."""

import gc


def main() -> None:
    """Run the command line.

    An answer allocates some 50,000 values and is over: by Python's usual thresholds a sixteenth of its time went into looking for
    garbage among them.
    """
    gc.set_threshold(50_000, 20, 20)
    from vramcast.cli import main as run

    run()


if __name__ == "__main__":
    main()
