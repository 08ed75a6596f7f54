"""`infoflow doctor`."""

from ._show import show, show_table


def doctor() -> int:
    """Check this machine: what works, what does not, and what to do about it."""
    from ._checkup import examine

    checks = examine()
    show_table(["", "part", "found"], [[check.state, check.part, check.found] for check in checks])
    for check in checks:
        if check.advice:
            show(f"\n{check.part}: {check.advice}")
    if any(check.state == "broken" for check in checks):
        return 1
    return 0
