"""The one error type whose message is meant for the user as it stands."""


class SvslError(ValueError):
    """Something the user can mend: says what was wrong, what was expected and how to fix it.

    The command line prints it as one line and exits with code 2.
    """
