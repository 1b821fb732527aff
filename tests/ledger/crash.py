"""A program that kills spending processes at random moments, and lets others race.

``python crash.py FOLDER KILLS`` prints as JSON what each way of spending left behind. It is a
program of its own because it forks, which one with threads, such as a test runner, must not do.
"""

import contextlib
import json
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

EVENT = Gaussian(4.001)  # mu just below 1/4: a budget of mu 1 has room for 16
ROOM = 16
PLENTY = GaussianDP(1e3)
RACERS = 4
LONGEST_LIFE = 3  # spends
KILLS_PER_LEDGER = 20
PAUSE = 2e-3


def spend(ledger, token):
    """Spend as the library does."""
    ledger.spend(EVENT, "zero_out", what=token)


class SlowDisk:
    """A connection to a disk that takes its time, so that few kills are enough."""

    def __init__(self, connection):
        self.connection = connection

    def execute(self, statement, *values):
        done = self.connection.execute(statement, *values)
        if statement.startswith("INSERT"):
            time.sleep(PAUSE)
        return done


@contextlib.contextmanager
def statement_by_statement(path):
    """Stand in for ``writing``: every statement is a transaction of its own."""
    with writing(path) as connection:
        connection.execute("COMMIT")
        yield SlowDisk(connection)
        connection.execute("BEGIN")


def spend_without_transaction(ledger, token):
    """Plant a bug: a record and the mark of the ledger's end are written one after the other."""
    module.writing, before = statement_by_statement, module.writing
    try:
        spend(ledger, token)
    finally:
        module.writing = before


def spend_after_looking(ledger, token):
    """Plant a bug: the balance is read before the lock is taken."""
    contents = ledger.contents()
    charge = contents.terms.rule.charge(EVENT, contents.terms.adjacency, None)
    if not contents.terms.rule.allows([*contents.charges, charge]):
        raise BudgetExceededError("too much")
    time.sleep(PAUSE)
    with writing(ledger.path) as connection:
        number = len(read(connection))
        entry = LedgerEntry(number, token, "", "", token, EVENT, None, charge, "", "")
        append(connection, entry.to_dict())


def record_first(spending):
    def release(ledger, token, emit):
        spending(ledger, token)
        emit(token)

    return release


def record_afterwards(ledger, token, emit):
    """Plant a bug: what is released is recorded after it was released."""
    emit(token)
    spend(ledger, token)


KILLED = {
    "as it is": record_first(spend),
    "recorded afterwards": record_afterwards,
    "without a transaction": record_first(spend_without_transaction),
}
RACING = {"as it is": spend, "balance read before the lock": spend_after_looking}


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


def seconds_of_a_spend(folder, repetitions=5):
    """Measure how long a spend takes in a new process; it depends on what else the machine does."""
    ledger = PrivacyLedger.create(folder / "timing.ledger", data="rows", budget=PLENTY)
    start = time.monotonic()
    child = fork(lambda: [spend(ledger, "timing") for _ in range(repetitions)])
    os.waitpid(child, 0)
    return (time.monotonic() - start) / repetitions


def kill(child, longest, rng):
    """End a process, whatever it is doing at that moment."""
    time.sleep(rng.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kill_at_random(release, folder, kills, rng):
    """Kill processes that release one thing after the other; compare what left with the ledger."""
    found = {"kills": 0, "released": 0, "unrecorded": 0, "unreadable": 0, "interrupted": 0}
    longest = LONGEST_LIFE * seconds_of_a_spend(folder)
    while found["kills"] < kills:
        path, log = folder / f"{found['kills']}.ledger", folder / f"{found['kills']}.log"
        ledger = PrivacyLedger.create(path, data="rows", budget=PLENTY)
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def emit(token, out=out):
            os.write(out, f"{token}\n".encode())

        def work(ledger=ledger, emit=emit):
            for number in range(10**6):
                release(ledger, f"{os.getpid()} {number}", emit)

        for _ in range(min(KILLS_PER_LEDGER, kills - found["kills"])):
            kill(fork(work), longest, rng)
            found["kills"] += 1
            found["interrupted"] += Path(f"{path}-journal").exists()
        os.close(out)
        released = log.read_text().split("\n")[:-1]
        found["released"] += len(released)
        try:
            recorded = {entry.what for entry in ledger.contents().entries}
            ledger.spend(EVENT, "zero_out", what="one more")
            found["unreadable"] += bool(ledger.verify())
        except LedgerError:
            found["unreadable"] += 1
            continue
        found["unrecorded"] += len(set(released) - recorded)
    return found


def kill_while_created(folder, kills, rng):
    """Kill processes that make a ledger; what is there is then a ledger, or may become one."""
    found = {"kills": kills, "made": 0, "unreadable": 0}
    longest = 2.0 * seconds_of_a_spend(folder)
    for number in range(kills):
        path = folder / f"new {number}.ledger"
        terms = {"data": "rows", "budget": PLENTY}
        child = fork(lambda path=path, terms=terms: PrivacyLedger.create(path, **terms))
        kill(child, longest, rng)
        try:
            PrivacyLedger(path)
            found["made"] += 1
        except LedgerError:
            found["unreadable"] += bool(PrivacyLedger.create(path, **terms).verify())
    return found


def race(spending, folder, name):
    """Let processes race for what is left; count those that were let through."""
    ledger = PrivacyLedger.create(folder / f"{name}.ledger", data="rows", budget=GaussianDP(1.0))
    out = os.open(folder / f"{name}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    start = time.monotonic() + 0.1

    def work():
        time.sleep(max(0.0, start - time.monotonic()))
        for number in range(2 * ROOM):
            try:
                spending(ledger, f"{os.getpid()} {number}")
                os.write(out, b"1")
            except BudgetExceededError:
                os.write(out, b"0")

    for child in [fork(work) for _ in range(RACERS)]:
        os.waitpid(child, 0)
    outcomes = (folder / f"{name}.log").read_text()
    return {"allowed": outcomes.count("1"), "refused": outcomes.count("0")}


def main(folder, kills):
    rng = random.Random()
    found = {}
    for number, (name, release) in enumerate(KILLED.items()):
        own = folder / f"kill {number}"
        own.mkdir()
        # Planted bugs show early.
        share = kills if number == 0 else 2 * KILLS_PER_LEDGER
        found[name] = kill_at_random(release, own, share, rng)
    found["while created"] = kill_while_created(folder, max(20, kills // 10), rng)
    found["races"] = {name: race(spending, folder, name) for name, spending in RACING.items()}
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))))  # noqa: T201
