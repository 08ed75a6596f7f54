"""The one error that a user can fix."""


class UserError(Exception):
    """A mistake of the user: the command line prints it without a traceback and exits with code 2.

    The message says what is wrong, the constraint, what was given, and what to do.
    """


def missing_extra(feature: str, package: str, extra: str) -> UserError:
    """The error for an optional dependency that is not installed."""
    return UserError(f'{feature} needs {package}. Install it: pip install "infoflow[{extra}]"')
