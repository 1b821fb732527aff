"""A program that kills spending processes at every moment, and lets others race.

``python crash.py FOLDER`` prints the files that each way of spending leaves; ``python crash.py
FOLDER KILLS`` kills at random moments instead. It is a program of its own because it forks, which
one with threads, such as a test runner, must not do.
"""

import contextlib
import itertools
import json
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path

import dpglm.ledger.ledger as module
from dpglm.exceptions import BudgetExceededError, LedgerError
from dpglm.ledger import LedgerEntry, PrivacyLedger
from dpglm.ledger.store import append, read, writing
from dpglm.privacy import Gaussian, GaussianDP
from tests.ledger.moments import Moments

EVENT = Gaussian(4.001)  # mu just below 1/4: a budget of mu 1 has room for 16
ROOM = 16
TERMS = {"data": "rows", "budget": GaussianDP(1e3)}
RACERS = 3  # the last round has too many
LONGEST_LIFE = 3  # spends
KILLS_PER_LEDGER = 20


def spend(ledger, token):
    """Spend as the library does."""
    ledger.spend(EVENT, "zero_out", what=token)


@contextlib.contextmanager
def statement_by_statement(path):
    """Stand in for ``writing``: every statement is a transaction of its own."""
    with writing(path) as connection:
        connection.execute("COMMIT")
        yield connection
        connection.execute("BEGIN")


def spend_without_transaction(ledger, token):
    """Plant a bug: a record and the mark of the ledger's end are written one after the other."""
    module.writing, before = statement_by_statement, module.writing
    try:
        spend(ledger, token)
    finally:
        module.writing = before


def record_first(spending):
    def release(ledger, token, emit):
        spending(ledger, token)
        emit(token)

    return release


def record_afterwards(ledger, token, emit):
    """Plant a bug: a release is recorded after it was made."""
    emit(token)
    spend(ledger, token)


KILLED = {
    "as it is": record_first(spend),
    "recorded afterwards": record_afterwards,
    "without a transaction": record_first(spend_without_transaction),
}


class LookingFirst:
    """Plant a bug: the balance is read, by all racers at once, before the lock is taken."""

    def __init__(self):
        self.all = multiprocessing.get_context("fork").Barrier(RACERS)

    def __call__(self, ledger, token):
        contents = ledger.contents()
        self.all.wait()
        charge = contents.terms.filter.charge(EVENT, contents.terms.adjacency, None)
        if not contents.terms.filter.allows([*contents.by_part[None], charge]):
            raise BudgetExceededError("too much")
        with writing(ledger.path) as connection:
            number = len(read(connection))
            entry = LedgerEntry(number, token, "", "", token, EVENT, None, charge, "", "")
            append(connection, entry.to_dict())
        self.all.wait()


def fork(work):
    """Start a process that does some work and ends; return when it has begun."""
    begun, beginning = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(beginning, b"1")
        try:
            work()
        finally:
            os._exit(0)
    os.read(begun, 1)
    os.close(begun)
    os.close(beginning)
    return child


def ended(child):
    """Wait for a process; return whether it was killed."""
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


class Books:
    """A ledger, and a file with the releases of its users."""

    def __init__(self, folder, name):
        self.path = folder / f"{name}.ledger"
        self.ledger = PrivacyLedger.create(self.path, **TERMS)
        self.log = os.open(folder / f"{name}.log", os.O_CREAT | os.O_RDWR | os.O_APPEND)

    def emit(self, token):
        os.write(self.log, f"{token}\n".encode())

    @property
    def interrupted(self):
        """Whether a process ended in the middle of a transaction."""
        return Path(f"{self.path}-journal").exists()

    @property
    def released(self):
        return os.pread(self.log, 2**20, 0).decode().split("\n")[:-1]

    def problems(self):
        """Compare the releases with the ledger: tokens without a record, faults."""
        try:
            recorded = {entry.what for entry in self.ledger.contents().entries}
            self.ledger.spend(EVENT, "zero_out", what="one more")
            faults = bool(self.ledger.verify())
        except LedgerError:
            return {"unrecorded": 0, "unreadable": 1}
        return {"unrecorded": len(set(self.released) - recorded), "unreadable": int(faults)}


def kill_always(release, folder, moments, recovering):
    """Kill a process at its first moment, one at its second, and so on, until one has survived.

    Each finds the ledger as the one before has left it, in the middle of a transaction even, if
    ``recovering``.
    """
    books, found, kills = Books(folder, f"{recovering}"), {"interrupted": 0, "released": 0}, 0

    def emit(token):
        moments.pass_one()
        books.emit(token)
        moments.pass_one()

    def work():
        moments.left = kills
        release(books.ledger, f"{kills}", emit)

    problems = {"unrecorded": 0, "unreadable": 0}
    while ended(fork(work)) and not any(problems.values()):
        kills += 1
        found["interrupted"] += books.interrupted
        if not recovering:
            problems = books.problems()
    if recovering:
        problems = books.problems()
    return {"kills": kills, **found, "released": len(books.released), **problems}


def kill_while_created(folder, moments):
    """Kill processes that make a ledger; the remaining file is a ledger, or may become one."""
    found = {"kills": 0, "made": 0, "unreadable": 0}

    def create():
        moments.left = found["kills"]
        PrivacyLedger.create(path, **TERMS)

    while True:
        path = folder / f"new {found['kills']}.ledger"
        if not ended(fork(create)):
            return found
        found["kills"] += 1
        try:
            PrivacyLedger(path)
            found["made"] += 1
        except LedgerError:
            found["unreadable"] += bool(PrivacyLedger.create(path, **TERMS).verify())


def race(spending, folder, name):
    """Let processes race for the remaining budget; count the accepted ones."""
    ledger = PrivacyLedger.create(folder / f"{name}.ledger", data="rows", budget=GaussianDP(1.0))
    out = os.open(folder / f"{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    start = multiprocessing.get_context("fork").Barrier(RACERS)

    def work():
        start.wait()
        for number in range(ROOM):
            try:
                spending(ledger, f"{os.getpid()} {number}")
                os.write(out, b"1")
            except BudgetExceededError:
                os.write(out, b"0")

    for child in [fork(work) for _ in range(RACERS)]:
        ended(child)
    outcomes = (folder / f"{name}.log").read_text()
    return {"allowed": outcomes.count("1"), "refused": outcomes.count("0")}


def at_every_moment(folder):
    found, moments = {}, Moments()
    for number, (name, release) in enumerate(KILLED.items()):
        own = folder / f"kill {number}"
        own.mkdir()
        found[name] = [kill_always(release, own, moments, again) for again in (False, True)]
    found["while created"] = kill_while_created(folder, moments)
    found["races"] = {
        "as it is": race(spend, folder, "as it is"),
        "balance read before the lock": race(LookingFirst(), folder, "looking first"),
    }
    return found


def seconds_of_a_spend(folder, repetitions=5):
    """Measure how long a spend takes in a new process."""
    ledger = PrivacyLedger.create(folder / "timing.ledger", **TERMS)
    start = time.monotonic()
    ended(fork(lambda: [spend(ledger, "timing") for _ in range(repetitions)]))
    return (time.monotonic() - start) / repetitions


def at_random(folder, kills):
    """Kill processes that release one thing after the other, whatever they are doing."""
    rng = random.Random()
    found = {"kills": 0, "unrecorded": 0, "unreadable": 0}
    longest = LONGEST_LIFE * seconds_of_a_spend(folder)
    release = KILLED["as it is"]
    while found["kills"] < kills:
        books = Books(folder, found["kills"])

        def work(books=books):
            for number in itertools.count():
                release(books.ledger, f"{os.getpid()} {number}", books.emit)

        for _ in range(KILLS_PER_LEDGER):
            child = fork(work)
            time.sleep(rng.uniform(0.0, longest))
            os.kill(child, signal.SIGKILL)
            ended(child)
            found["kills"] += 1
        for name, count in books.problems().items():
            found[name] += count
    return found


if __name__ == "__main__":
    folder, kills = Path(sys.argv[1]), [int(kills) for kills in sys.argv[2:]]
    print(json.dumps(at_random(folder, *kills) if kills else at_every_moment(folder)))  # noqa: T201
