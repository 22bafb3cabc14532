"""The one exception raised for input that a user can mend."""


class InputError(ValueError):
    """Bad input, told in one sentence: which argument, what was found, what was expected."""
