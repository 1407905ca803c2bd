"""Every error a user of tlm can meet. Each message names the thing, the values, and what would be right."""

from __future__ import annotations


class TlmError(Exception):
    """Base of every error raised on purpose by tlm."""


class ArgumentError(TlmError, ValueError):
    """A call with wrong arguments: shapes that do not match, an unknown name, an unfit `out=`."""


class DTypeError(TlmError, TypeError):
    """A dtype that an operator or a buffer cannot take."""


class VerifyError(TlmError):
    """A program that breaks a rule of the IR; the message shows the offending node."""


class ScheduleError(TlmError):
    """A schedule step that would change what the program computes, or names something that is not there."""


class BackendError(TlmError):
    """A program that this backend, or this machine, cannot compile or run."""


class RecordError(TlmError, ValueError):
    """A stored record, schedule or model file that does not have the expected form."""


class TlmWarning(UserWarning):
    """Something the user should know that does not stop the work."""
