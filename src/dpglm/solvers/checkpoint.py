"""Checkpoints: the released state of a run in a file, for resuming an interrupted fit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, final

import joblib
import numpy as np
from numpy.typing import NDArray

from dpglm._codec import APART_FIELD, Format, arrays_apart, decode, encode, named
from dpglm._json import DocumentError, at, file_identity, in_file, parse
from dpglm._validation import check_kind, check_path
from dpglm._version import __version__
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.entry import LedgerReference
from dpglm.ledger.store import files_of as files_of_ledger
from dpglm.ledger.store import replacing
from dpglm.privacy.events import Composed, DisjointParts, Event, canonical
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Method, Plan, StepInfo
from dpglm.solvers.uncertainty import Floats

# Errors of zipfile and NumPy for damaged files.
_DAMAGES = (ValueError, TypeError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read a file of ``write_arrays``, or raise ValueError; nothing in the file is trusted."""
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
        if sum(one.file_size for one in members) > path.stat().st_size or any(
            one.compress_type != zipfile.ZIP_STORED for one in members
        ):
            raise ValueError("its parts are larger than the file")
        with np.load(path, allow_pickle=False) as loaded:
            return dict(loaded)
    except _DAMAGES as error:
        raise ValueError(f"is damaged, or no checkpoint: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replace a file with arrays, atomically."""
    with replacing(path, mode=0o600) as file:
        np.savez(file, allow_pickle=False, **arrays)


_KINDS: ContextVar[tuple[type, ...]] = ContextVar("dpglm_states", default=())
AnyState: TypeAlias = (
    Floats
    | Annotated[
        Any, named("state of this plan", _KINDS.get, lambda value: type(value) in _KINDS.get())
    ]
)
"""A state of one of the methods of the plan that is run: an array or a dataclass."""


@contextlib.contextmanager
def states(kinds: Iterable[type], arrays: dict[str, NDArray[Any]]) -> Iterator[None]:
    """Read and write states of these kinds, with their arrays apart."""
    token = _KINDS.set(tuple(kinds))
    try:
        with arrays_apart(arrays):
            yield
    finally:
        _KINDS.reset(token)


def same_kind(value: Any, other: Any) -> bool:
    """Whether a state has the classes and shapes of ``other``, the first state of a method.

    None and empty tuples there are filled in later, and are not compared.
    """
    if other is None or (isinstance(other, tuple) and not other):
        return True
    if type(value) is not type(other):
        return False
    if isinstance(other, np.ndarray):
        return bool(value.shape == other.shape and value.dtype == other.dtype)
    if isinstance(other, tuple):
        # Iterates so far are all of one kind.
        longer = (*other, *other[:1] * (len(value) - len(other)))
        return len(value) >= len(other) and all(map(same_kind, value, longer))
    fields = dataclasses.fields(other) if dataclasses.is_dataclass(other) else ()
    return all(same_kind(getattr(value, one.name), getattr(other, one.name)) for one in fields)


# Public facts as JSON that tells any two apart, and the differences of two such texts.

_LONGEST = 4000
"""Longer texts are hashed."""
_SHOWN = 60


def described(value: Any) -> Any:
    """Describe a public value as JSON: equal in every process if and only if values are equal.

    Numbers, text, lists, mappings and the fields of dataclasses are readable; other values and long
    ones are hashed. ValueError for values that only exist in this process, such as a lambda.
    """
    found: Any
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        found = value
    elif isinstance(value, np.ndarray):
        found = {"dtype": str(value.dtype), "array": described(value.tolist())}
    elif type(value) in (list, tuple):
        found = [described(one) for one in value]
    elif isinstance(value, Mapping) and all(type(key) is str for key in value):
        found = {key: described(one) for key, one in value.items()}
    else:
        kind = type(value)
        found = {"class": f"{kind.__module__}.{kind.__qualname__}"}
        if dataclasses.is_dataclass(kind):
            # Without cached properties, which a hash of the object would include.
            fields = dataclasses.fields(kind)
            found |= {one.name: described(getattr(value, one.name)) for one in fields}
        else:
            try:
                found["hash"] = joblib.hash(value)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise ValueError(f"{value!r} cannot be described: {error}") from None
    text = json.dumps(found, sort_keys=True)
    return found if len(text) <= _LONGEST else {"hash": joblib.hash(text), "length": len(text)}


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """List the differences of two descriptions: ``problem.loss.class was "A", is "B"``."""
    texts = [json.dumps(one, sort_keys=True) for one in (before, now)]
    if texts[0] == texts[1]:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        for kind in ("class", "type"):
            if before.get(kind) != now.get(kind):
                return differences(before.get(kind), now.get(kind), name)
        return [
            one
            for key in (before | now)
            for one in differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
        ]
    was, is_now = (
        text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
        for text in ("absent" if text == "null" else text for text in texts)
    )
    return [f"{name} was {was}, is {is_now}"]


_NOTHING = Composed(())
_INFO = tuple(field.name for field in dataclasses.fields(StepInfo))
_NAMED = 4


@final
@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint file, and the facts that must be the same for a run to resume.

    Parameters
    ----------
    path : path-like
        The file, in a folder that exists.
    facts : mapping from str to object, default={}
        Public values besides the plan: the encoding of the table, and the conversion of
        coefficients to a model. Made of numbers, text, arrays, dataclasses and containers of these.

    Notes
    -----
    Estimators record all their parameters and public facts here. Add your own preprocessing of the
    rows: ``fit(X, y, checkpoint=CheckpointFile("kept", {"encoding": "2026-03"}))``.

    Privacy: facts are written to the file as they are, so they must be public.
    """

    path: str | os.PathLike[str]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_path("checkpoint", self.path)
        check_kind("facts", self.facts, Mapping, "a mapping from names")

    @classmethod
    def of(cls, given: str | os.PathLike[str] | CheckpointFile, facts: Mapping[str, Any]) -> Self:
        """Add facts to a file that was given by its path, or with facts of its own."""
        if not isinstance(given, CheckpointFile):
            return cls(given, facts)
        twice = sorted(set(given.facts) & set(facts))
        if twice:
            raise ValueError(f"checkpoint must have facts of other names than {twice}")
        return cls(given.path, {**facts, **given.facts})


@final
@dataclass(frozen=True, eq=False)
class Progress:
    """The progress of a run; in a file the state is encoded, and the history apart."""

    seed: int
    state: Any
    steps: int = 0
    event: Event = _NOTHING
    entry: LedgerReference | None = None
    history: tuple[StepInfo, ...] = field(default=(), metadata=APART_FIELD)
    identity: str = ""


_FORMAT = Format("dpglm checkpoint", 5, Progress, {3: "0.1"})


@final
class RunCheckpoint:
    """A file that holds the progress of one run of one plan, made by ``opened``.

    Privacy: everything in the file is released: the state consists of released values, and eligible
    methods cover each of them. It contains no row, no noise and no secret of the noise source.

    A run that resumes spends nothing twice. A step's noise is drawn, and its sum released, in the
    memory of one process; nothing that depends on it leaves the process before the file is on the
    disk under its name, since callbacks are called after that. If the process dies earlier, its
    noise is lost with it and the outcome was never observed; the step is repeated with new noise,
    and the one observed outcome was charged once. If the process dies later, the outcome is in the
    file, and the next step builds on it. So any number of interrupted runs releases as much as one
    run of the plan. A lock on the file prevents a second process from resuming at the same step,
    which would give two outcomes.
    """

    def __init__(self, path: Path, method: Method[Any], identity: Mapping[str, Any]) -> None:
        self._path, self._method, self._identity = path, method, identity
        self._kinds = _kinds(method)

    def load(self) -> Progress | None:
        """Return the progress in the file; None without a file, or if nothing was released."""
        if not self._path.exists():
            return None
        with in_file(self._path):
            arrays = read_arrays(self._path)
            if "header" not in arrays:
                raise ValueError("is not a checkpoint of this version of dpglm")
            header = _FORMAT.read(parse(arrays.pop("header").tobytes()))
            # Infinities are among the facts, so this is not read as the rest is.
            try:
                different = differences(json.loads(header.identity), self._identity)
            except (ValueError, RecursionError) as error:
                raise DocumentError("identity", str(error)) from error
            if different and header.steps == 0 and header.entry is None:
                # A fit that was refused, as by a ledger: nothing was released.
                return None
            if different:
                more = f"; and {len(different) - _NAMED} more" if len(different) > _NAMED else ""
                raise PlanMismatchError(
                    f"{self._path} is the checkpoint of another fit: "
                    f"{'; '.join(different[:_NAMED])}{more}. Give another file, or delete this one "
                    "to start again (its budget stays spent)"
                )
            columns = [arrays.get(f"info_{name}") for name in _INFO]
            if not all(one is not None and one.shape == (header.steps,) for one in columns):
                raise DocumentError(
                    "steps", f"must be the length of the step arrays, got {header.steps}"
                )
            infos = zip(*(one.tolist() for one in columns if one is not None), strict=True)
            with at("state"), states(self._kinds, dict(arrays)):
                state: Any = decode(self._kinds[0], header.state)
                if not same_kind(state, self._method.init(header.seed)):
                    raise ValueError("is not a state of this fit")
        if header.steps == self._method.n_steps:
            warnings.warn(
                f"{self._path} holds a fit that is complete: its model is returned again for any "
                "rows. Delete the file to fit again",
                stacklevel=2,
            )
        return replace(header, state=state, history=tuple(StepInfo(*one) for one in infos))

    def save(self, progress: Progress) -> None:
        """Replace the file, atomically."""
        arrays: dict[str, NDArray[Any]] = {}
        state = _encoded(progress.state, self._kinds, arrays)
        header = replace(progress, state=state, identity=json.dumps(self._identity))
        for name in _INFO:
            arrays[f"info_{name}"] = np.array([getattr(info, name) for info in progress.history])
        arrays["header"] = np.frombuffer(json.dumps(_FORMAT.write(header)).encode(), np.uint8)
        write_arrays(self._path, arrays)


@contextlib.contextmanager
def opened(
    file: str | os.PathLike[str] | CheckpointFile,
    plan: Plan,
    noise: NoiseSource,
    ledger: str | os.PathLike[str] | None = None,
) -> Iterator[RunCheckpoint]:
    """Check that a run can be kept, and lock its file; ``ledger`` is that of the run, if any.

    ValueError if the plan does not cover iterates before the last, uses disjoint parts of the
    rows, has reproducible noise, the state or facts cannot be written, or the file belongs to the
    ledger; OSError if another process is using it.
    """
    kept = CheckpointFile.of(file, {})
    algorithm = plan.method.algorithm
    if not plan.method.releases_iterates:
        raise ValueError(
            f"checkpoint must be None for this plan of {algorithm}: its privacy needs secret "
            "iterates, and a file would hold them"
        )
    events = canonical(plan.method.mechanisms).terms
    if any(isinstance(basic, DisjointParts) for basic, _ in events):
        raise ValueError(
            f"checkpoint must be None for {algorithm}: releases about disjoint parts of the rows "
            "count once only if one run records all of them"
        )
    # A state that a file cannot hold must raise before anything is spent.
    _encoded(plan.method.init(0), _kinds(plan.method), {})
    if not noise.is_private:
        raise ValueError(
            "checkpoint must be None with reproducible noise (random_state): steps after an "
            "interruption would repeat the noise of those before it"
        )
    path = Path(kept.path)
    identity = {
        "version of dpglm": __version__,
        **{f"fact {name}": described(fact) for name, fact in kept.facts.items()},
        "plan": plan.document,
        "noise": noise.name,
    }
    if ledger is not None:
        theirs = set(map(file_identity, files_of_ledger(Path(ledger))))
        if not theirs.isdisjoint(map(file_identity, files_of(path))):
            raise ValueError(
                "checkpoint must be another file than those of the ledger, "
                f"{os.fspath(ledger)!r}, got {os.fspath(path)!r}"
            )
    with locked(files_of(path)[1]):
        yield RunCheckpoint(path, plan.method, identity)


def _kinds(method: Method[Any]) -> tuple[type, ...]:
    """List the classes of a method's states, its own first, and of the methods it consists of."""
    own: Any = type(method.init(0))
    below = (kind for child in method.children for kind in _kinds(child.method))
    return (tuple[Floats, ...] if own is tuple else own, *below)


def _encoded(state: Any, kinds: tuple[type, ...], arrays: dict[str, NDArray[Any]]) -> Any:
    try:
        with at("state"), states(kinds, arrays):
            return encode(state, kinds[0])
    except ValueError as error:
        raise ValueError(
            f"checkpoint must be None for this solver: its state cannot be written: {error}"
        ) from error


def files_of(path: Path) -> tuple[Path, Path]:
    """Return the paths of a checkpoint's file and of its lock."""
    return path, path.with_name(f".{path.name}.lock")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; none on Windows."""
    # Opening for appending changes nothing in the file.
    with open(path, "a") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError(f"{path}: another process is using this checkpoint") from None
        yield
