"""The command `infoflow`, and `python -m infoflow`, which `torchrun -m` needs."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C ends it without a traceback, even during the import."""
    try:
        from infoflow._process import use_utf8_console

        use_utf8_console()
        from infoflow.cli import main as command_line
    except KeyboardInterrupt:
        print("Interrupted before anything had begun.", file=sys.stderr)
        sys.exit(130)
    command_line()


if __name__ == "__main__":
    main()
