"""One measurement as a value: what was run, where, how it was scheduled, and what came of it.

Records cross machines and versions, so the JSON form is versioned and read by a strict, bounded schema: a
record is data, never code, and its numbers are never trusted as sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import RecordError, TlmError
from ..ir.canonical import key as workload_key
from ..ir.serialize import from_json as program_from_json
from ..space.choice import Value
from ..target import Target

VERSION = 1

MODELLED = "modelled"
"""The kind of records whose seconds are estimates: no clock has seen their programs."""

Values = tuple[Value, ...]
Status = Literal["ok", "wrong", "timeout", "crash", "error"]
Cache = Literal["warm", "cold"]
Json = dict[str, Any]

STATUSES: tuple[str, ...] = get_args(Status)
CACHES: tuple[str, ...] = get_args(Cache)

_NAME = re.compile(r"[A-Za-z0-9_.+*@:/ -]{1,64}")
_KEY = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**29
_MOST_CHOICES, _MOST_REPEATS, _MOST_STEPS, _MOST_PARTS = 256, 1024, 1000, 20_000
_LONGEST_MESSAGE = 2000
_MOST_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class Record:
    """A candidate and its outcome.

    `workload` is the canonical key of `program` (unscheduled, as JSON), `target` the JSON of a Target.
    `choices` are the values that the space's choices took, `steps` the JSON of the schedule steps they stand
    for. `seconds` holds one run time for each interleaved round, empty unless `status` is "ok". `kind` says
    who asked ("search", "random", "model", ...; "final" for the quiet re-timing of the fastest), `cache`
    whether the data was in the caches when the clock started.
    """

    workload: str
    program: Json
    target: Json
    choices: Values
    status: Status
    seconds: tuple[float, ...] = ()
    message: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    kind: str = "search"
    cache: Cache = "warm"
    steps: tuple[Json, ...] = ()

    @property
    def score(self) -> float:
        """Seconds of one run: the mean of the fastest third of the rounds; inf for a failure.

        Noise mostly adds time, but no single lucky round should decide.
        """
        if self.status != "ok" or not self.seconds:
            return math.inf
        count = -(-len(self.seconds) // 3)
        return sum(sorted(self.seconds)[:count]) / count

    @property
    def spread(self) -> float:
        """How far the slowest round is above the fastest, as a fraction; 0 with fewer than two rounds."""
        return max(self.seconds) / min(self.seconds) - 1.0 if len(self.seconds) > 1 else 0.0

    @property
    def name(self) -> str:
        """The program's name, for messages."""
        return str(self.program.get("name", "program"))


def to_json(record: Record) -> Json:
    """The JSON form of a record; `from_json` reads it back."""
    return {
        "version": VERSION,
        "workload": record.workload,
        "program": record.program,
        "target": record.target,
        "choices": list(record.choices),
        "status": record.status,
        "seconds": list(record.seconds),
        "message": record.message,
        "versions": dict(record.versions),
        "kind": record.kind,
        "cache": record.cache,
        "steps": list(record.steps),
    }


_FIELDS = frozenset({
    "version", "workload", "program", "target", "choices", "status", "seconds", "message", "versions", "kind",
    "cache", "steps",
})  # fmt: skip


def from_json(data: Any) -> Record:
    """The record that `to_json` wrote. Anything else is a RecordError that says what is wrong with it."""
    if not isinstance(data, dict):
        raise RecordError(f"a record is a JSON object, got {type(data).__name__}")
    if "version" not in data:
        raise RecordError("no version")
    if type(data["version"]) is not int or data["version"] != VERSION:
        raise RecordError(f"version {str(data['version'])[:20]} is not {VERSION}, the one this tlm reads")
    if missing := sorted(_FIELDS - data.keys()):
        raise RecordError(f"missing field {', '.join(missing)}")
    if extra := sorted(str(k)[:40] for k in data.keys() - _FIELDS):
        raise RecordError(f"unknown field {', '.join(extra[:3])}")
    return Record(
        workload=_matching(data, "workload", _KEY),
        program=_bounded_object(data, "program"),
        target=_bounded_object(data, "target"),
        choices=_choices(data["choices"]),
        status=_one_of(data, "status", STATUSES),
        seconds=_seconds(data["seconds"], data["status"]),
        message=_text(data["message"], "message", _LONGEST_MESSAGE),
        versions={
            _text(k, "versions", 64): _text(v, "versions", 200) for k, v in _object(data, "versions").items()
        },
        kind=_matching(data, "kind", _NAME),
        cache=_one_of(data, "cache", CACHES),
        steps=_steps(data["steps"]),
    )


def check_program(record: Record) -> None:
    """RecordError unless program and target are well formed and `workload` is the program's key."""
    try:
        key = workload_key(program_from_json(record.program))
        Target.from_json(record.target)
    except TlmError as e:
        raise RecordError(f"bad program or target: {e}") from e
    if key != record.workload:
        raise RecordError(f"workload {record.workload[:12]} is not the key of its program, {key[:12]}")


def _object(data: Json, name: str) -> Json:
    if not isinstance(data[name], dict):
        raise RecordError(f"{name} must be an object, got {type(data[name]).__name__}")
    return dict(data[name])


def _bounded_object(data: Json, name: str) -> Json:
    _bounded(_object(data, name), name, _MOST_PARTS)
    return dict(data[name])


def _matching(data: Json, name: str, pattern: re.Pattern[str]) -> str:
    value = data[name]
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise RecordError(f"{name} must match {pattern.pattern}, got {str(value)[:40]!r}")
    return value


def _one_of(data: Json, name: str, allowed: tuple[str, ...]) -> Any:
    if data[name] not in allowed:
        raise RecordError(f"{name} must be one of {', '.join(allowed)}, got {str(data[name])[:40]!r}")
    return data[name]


def _text(value: Any, name: str, longest: int) -> str:
    if not isinstance(value, str) or len(value) > longest:
        raise RecordError(f"{name} must be text of at most {longest} characters, got {str(value)[:40]!r}")
    return value


def _choices(values: Any) -> Values:
    if not isinstance(values, list) or len(values) > _MOST_CHOICES:
        raise RecordError(f"choices must be a list of at most {_MOST_CHOICES} values")
    for value in values:
        integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST
        if not integer and not (isinstance(value, str) and _NAME.fullmatch(value)):
            raise RecordError(
                f"a choice is an integer up to {_LARGEST} or a plain word, got {str(value)[:40]!r}"
            )
    return tuple(values)


def _seconds(values: Any, status: str) -> tuple[float, ...]:
    if not isinstance(values, list) or len(values) > _MOST_REPEATS:
        raise RecordError(f"seconds must be a list of at most {_MOST_REPEATS} numbers")
    for value in values:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < _MOST_SECONDS:
            raise RecordError(f"seconds must be positive numbers below 1e9, got {str(value)[:40]!r}")
    if bool(values) != (status == "ok"):
        raise RecordError(f"status {status} with {len(values)} run times: only an ok record has them")
    return tuple(map(float, values))


def _steps(values: Any) -> tuple[Json, ...]:
    if not isinstance(values, list) or len(values) > _MOST_STEPS:
        raise RecordError(f"steps must be a list of at most {_MOST_STEPS} steps")
    if not all(isinstance(v, dict) for v in values):
        raise RecordError("a step must be an object")
    _bounded(values, "steps", _MOST_PARTS, _LARGEST)
    return tuple(values)


def _bounded(value: Any, name: str, parts: int, largest: float = math.inf) -> None:
    """RecordError where a JSON value has more than `parts` parts, long text or too large an integer."""
    stack = [value]
    for _ in range(parts):
        if not stack:
            return
        match stack.pop():
            case dict() as d:
                stack += [*d.keys(), *d.values()]
            case list() as items:
                stack += items
            case str() as s if len(s) > 300:
                raise RecordError(f"{name} holds text of {len(s)} characters")
            case int() as n if abs(n) > largest:
                raise RecordError(f"{name} holds the number {str(n)[:40]}; the largest allowed is {largest}")
    if stack:
        raise RecordError(f"{name} has more than {parts} parts")
