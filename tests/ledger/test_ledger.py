"""The ledger: records, refusals, and detection of changes."""

import copy
import json
import pickle
import sqlite3
import threading

import pytest

from dpglm import ApproximateDP, GaussianDP, PrivacyLedger
from dpglm._json import canonical_json
from dpglm.exceptions import BudgetExceededError, LedgerError
from dpglm.ledger import LedgerContents
from dpglm.ledger.ledger import as_ledger
from dpglm.ledger.store import Record, writing
from dpglm.privacy import Adjacency, Composed, Gaussian, PoissonSampled, Repeated, spent

BUDGET = ApproximateDP(1.0, 1e-6)
STEP = Repeated(Gaussian(80.0), 50)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger.create(tmp_path / "people.ledger", data="people", budget=BUDGET)


@pytest.fixture
def used(ledger):
    for number in range(4):
        ledger.spend(Gaussian(20.0 + number), "zero_out", what=f"question {number}")
    return ledger


class TestSpending:
    def test_text_lists_charges_by_event(self, ledger):
        mine = PrivacyLedger(ledger.path, who="an analyst")
        entry = mine.spend(STEP, Adjacency.ZERO_OUT, what="a model")
        assert ledger.contents().entries == (entry,)
        assert (entry.number, entry.who, entry.what) == (1, "an analyst", "a model")
        assert entry.event == STEP
        assert "@" in ledger.spend(STEP, "zero_out", what="another").who

    def test_composes_exactly_over_everything(self, used):
        whole = used.contents()
        assert whole.event == Composed(tuple(Gaussian(20.0 + number) for number in range(4)))
        expected = spent(whole.event, Adjacency.ZERO_OUT, BUDGET)["epsilon"]
        assert whole.spent()["epsilon"] == pytest.approx(expected, rel=1e-12)

    def test_refuses_to_go_over_and_records_nothing(self, ledger):
        ledger.spend(Gaussian(5.0), "zero_out", what="most of it")
        with pytest.raises(
            BudgetExceededError, match=r"budget of .* 'people', mu 0\.1.* costs mu 0\.2"
        ):
            ledger.spend(Gaussian(5.0), "zero_out", what="too much")
        assert len(ledger.contents().entries) == 1
        ledger.spend(Gaussian(10.0), "zero_out", what="a little")

    def test_a_path_names_the_same_ledger(self, ledger, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        as_ledger("people.ledger").spend(STEP, "zero_out", what="by path")
        assert len(ledger.contents().entries) == 1
        assert as_ledger(ledger) is ledger
        assert as_ledger(None) is None

    def test_copies_and_threads_share_the_file(self, ledger):
        several = [copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger)), ledger]
        assert several[0] == several[1] == ledger
        threads = [
            threading.Thread(target=one.spend, args=(STEP, "zero_out"), kwargs={"what": "a thread"})
            for one in several
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [entry.number for entry in ledger.contents().entries] == [1, 2, 3]
        assert ledger.verify() == ()

    def test_odd_names_are_names(self, tmp_path):
        odd = tmp_path / "100 % of a?b#c\u00e9.ledger"
        made = PrivacyLedger.create(odd, data="\u00e9 'quoted'\n", budget=BUDGET, fingerprint="v1")
        made.spend(STEP, "zero_out", what="\u00fc\ud7ff")
        assert [path.name for path in tmp_path.iterdir()] == [odd.name]
        assert PrivacyLedger(odd, "\u00e9 'quoted'\n", "v1").verify() == ()

    def test_other_filters(self, tmp_path):
        sgd = Repeated(PoissonSampled(0.01, Gaussian(3.0)), 100)
        for name in ("renyi", "basic"):
            made = PrivacyLedger.create(tmp_path / name, data="rows", budget=BUDGET, filter=name)
            entry = made.spend(sgd, "zero_out", what="a sampled fit", delta=2e-7)
            assert entry.delta == 2e-7
            assert 0.0 < made.contents().spent()["epsilon"] < 0.6
            assert made.verify() == ()


# What `export` gave before entries had labels.
OLD = {
    "format": "dpglm ledger export",
    "version": 1,
    "records": [
        {
            "record": {
                "adjacency": "zero_out",
                "created": "2026-11-22T15:29:29.301129+00:00",
                "data": "people",
                "filter": {
                    "budget": {"delta": 1e-06, "epsilon": 1.0, "type": "approximate_dp"},
                    "type": "gaussian",
                },
                "fingerprint": None,
                "format": "dpglm ledger",
                "id": "58d57291f62c4fd167fa6decc10b931c",
                "version": 1,
            },
            "digest": "699911916bd3a24fb669690cb6be05ce75eefdffe8da5c332863c6f03ae90026",
        },
        {
            "record": {
                "charge": {"mu": 0.05000000000000006},
                "delta": None,
                "event": {"noise_multiplier": 20.0, "type": "gaussian"},
                "id": "4abc8b591c316f00e32dbb4967f4e9d8",
                "number": 1,
                "time": "2026-11-22T15:29:29.306078+00:00",
                "version": "dpglm 0.1.0",
                "what": "a model",
                "who": "an analyst",
            },
            "digest": "8b4d1b2fd205c793d3690f11a72af73b563b05b88dd92a2eeccd115e45920f65",
        },
    ],
}


class TestLabels:
    def test_name_an_analysis_in_its_entries(self, ledger, used):
        named = PrivacyLedger(ledger.path, label="income by region")
        entry = named.spend(STEP, "zero_out", what="a model")
        *before, last = ledger.contents().entries
        assert last == entry
        assert [one.label for one in (*before, last)] == [None] * 4 + ["income by region"]
        assert LedgerContents.from_dict(ledger.export()) == ledger.contents()
        assert ledger.verify([ledger.terms().reference(entry)]) == ()

    def test_entries_without_one_are_as_they_always_were(self, used):
        assert all("label" not in one["record"] for one in used.export()["records"])

    def test_ledgers_from_before_there_were_labels_are_read(self):
        contents = LedgerContents.from_dict(OLD)
        assert contents.problems() == ()
        assert [entry.label for entry in contents.entries] == [None]
        assert [entry.to_dict() for entry in contents.entries] == [OLD["records"][1]["record"]]

    def test_are_covered_by_the_digest(self, ledger):
        PrivacyLedger(ledger.path, label="mine").spend(STEP, "zero_out", what="a model")
        document = ledger.export()
        document["records"][1]["record"]["label"] = "yours"
        with pytest.raises(LedgerError, match="was changed"):
            LedgerContents.from_dict(document)

    @pytest.mark.parametrize("label", ["", " ", "two\nlines", 3, "caf\udce9"])
    def test_are_one_line_of_text(self, ledger, label):
        with pytest.raises(ValueError, match="label must be"):
            PrivacyLedger(ledger.path, label=label)


class TestDurability:
    def test_commits_are_synced(self, ledger):
        with writing(ledger.path) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
            assert connection.in_transaction

    def test_a_block_that_fails_leaves_nothing(self, ledger):
        def fail():
            with writing(ledger.path) as connection:
                connection.execute("UPDATE head SET number = 7")
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert ledger.verify() == ()

    def test_no_files_remain_next_to_the_file(self, used, tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == ["people.ledger"]

    def test_full_disk_is_refused_and_keeps_files(self, used, monkeypatch):
        import dpglm.ledger.ledger as module

        class Full:
            def __init__(self, connection):
                self.connection = connection

            def execute(self, statement, *values):
                if statement.startswith("UPDATE"):
                    raise sqlite3.OperationalError("database or disk is full")
                return self.connection.execute(statement, *values)

        append = module.append
        monkeypatch.setattr(
            module, "append", lambda connection, document: append(Full(connection), document)
        )
        with pytest.raises(LedgerError, match="disk is full"):
            used.spend(STEP, "zero_out", what="no room")
        assert len(used.contents().entries) == 4
        assert used.verify() == ()


class TestKeys:
    def test_the_same_key_pays_once(self, used):
        first = used.spend(STEP, "zero_out", what="a fit", key="a fit")
        again = PrivacyLedger(used.path).spend(Repeated(STEP, 1), "zero_out", what="x", key="a fit")
        assert first == again
        assert first.id == "a fit"
        assert len(used.contents().entries) == 5

    def test_even_when_nothing_is_left(self, ledger):
        large = Gaussian(4.3)
        first = ledger.spend(large, "zero_out", what="all of it", key="k")
        assert ledger.spend(large, "zero_out", what="all of it", key="k") == first

    def test_a_key_is_for_one_event(self, used):
        used.spend(STEP, "zero_out", what="a fit", key="a fit")
        with pytest.raises(LedgerError, match="key must be new, or belong to Gaussian"):
            used.spend(Gaussian(99.0), "zero_out", what="another", key="a fit")
        assert len(used.contents().entries) == 5


def forged(path, statement, *values):
    """Change the file behind the ledger's back."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DROP TRIGGER no_change")
        connection.execute("DROP TRIGGER no_removal")
        connection.execute(statement, values)
    connection.close()


class TestTampering:
    @pytest.mark.parametrize(
        ("statement", "values"),
        [
            ("DELETE FROM records WHERE number = 4", ()),
            ("DELETE FROM records WHERE number = 2", ()),
            ("DELETE FROM records", ()),
            ("UPDATE records SET text = replace(text, '20.0', '90.0')", ()),
            ("UPDATE records SET text = replace(text, 'question 3', 'question 4')", ()),
            ("UPDATE records SET digest = ? WHERE number = 4", ("0" * 64,)),
            ("UPDATE records SET number = 9 WHERE number = 4", ()),
            ("UPDATE head SET number = 3", ()),
            ("DELETE FROM head", ()),
            ("UPDATE records SET text = replace(text, '1e-06', '1e-05') WHERE number = 0", ()),
            ("UPDATE records SET text = 'no JSON' WHERE number = 4", ()),
        ],
    )
    def test_is_seen_and_stops_spending(self, used, statement, values):
        forged(used.path, statement, *values)
        assert used.verify()
        with pytest.raises(LedgerError, match=r"changed|missing"):
            used.spend(Gaussian(90.0), "zero_out", what="one more")

    @pytest.mark.parametrize("statement", ["DELETE FROM records", "UPDATE records SET text = ''"])
    def test_accidents_are_stopped_by_the_file(self, used, statement):
        connection = sqlite3.connect(used.path)
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            connection.execute(statement)
        connection.close()
        assert used.verify() == ()

    def test_a_lower_price_in_a_consistent_chain_is_seen(self, used):
        document = used.export()
        document["records"][1]["record"]["charge"]["mu"] *= 0.5
        contents = LedgerContents.from_dict(rechained(document))
        (problem,) = contents.problems()
        assert problem.startswith("entry 1 was charged {'mu': 0.025")
        assert "but costs {'mu': 0.05" in problem

    def test_overspending_in_a_consistent_chain_is_seen(self, used):
        document = used.export()
        document["records"][0]["record"]["filter"]["budget"]["epsilon"] = 0.1
        (problem,) = LedgerContents.from_dict(rechained(document)).problems()
        assert problem.startswith("the charges exceed the budget ApproximateDP(epsilon=0.1")

    def test_invalid_charges_are_detected(self, used):
        document = used.export()
        document["records"][2]["record"]["charge"] = {"epsilon": 0.0}
        assert "was charged" in LedgerContents.from_dict(rechained(document)).problems()[0]

    def test_a_certificate_shows_that_all_was_replaced(self, used):
        reference = used.terms().reference(used.contents().entries[3])
        assert used.verify([reference]) == ()
        document = used.export()
        del document["records"][-1]
        (problem,) = LedgerContents.from_dict(document).problems([reference])
        assert problem.startswith("entry 4 with id")
        document = used.export()
        document["records"][1]["record"]["what"] = "something else"
        assert LedgerContents.from_dict(rechained(document)).problems([reference])

    def test_an_entry_of_another_ledger_is_seen(self, used, tmp_path):
        other = PrivacyLedger.create(tmp_path / "other", data="others", budget=BUDGET)
        entry = other.spend(STEP, "zero_out", what="elsewhere")
        (problem,) = used.verify([other.terms().reference(entry)])
        assert "another ledger" in problem
        assert "'others'" in problem


def rechained(document):
    """Give a changed export the digests that it should have."""
    import hashlib

    before = "0" * 64
    for one in document["records"]:
        text = f"{before}\n{canonical_json(one['record'])}"
        before = one["digest"] = hashlib.sha256(text.encode()).hexdigest()
    return document


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"digest": "0" * 64}, "digest must not be part of the record"),
        ({"delta": "inf"}, "delta must be a finite number, got 'inf'"),
        ({"delta": -1.0}, "delta: amount must be"),
        ({"charge": {"mu": "inf"}}, r"charge\.mu must be a finite number, got 'inf'"),
        ({"charge": {"mu": 1e200}}, r"charge\.mu: amount must be .* at most 1e\+100"),
        ({"charge": {"mu": -1.0}}, r"charge\.mu: amount must be"),
        ({"charge": 3}, "charge must be an object"),
        ({"number": "1"}, "number must be an integer"),
        ({"event": {"type": "nothing"}}, "event: type must be one of"),
        ({"more": 1}, r"unknown: \['more'\]"),
    ],
)
def test_forged_entry_in_consistent_chain_is_refused_by_field(used, changes, says):
    document = used.export()
    document["records"][2]["record"].update(changes)
    with pytest.raises(LedgerError, match=says):
        LedgerContents.from_dict(rechained(document))


def test_a_ledger_of_a_known_text_is_read_and_written_the_same():
    """Hashed texts may never change: ledgers that contain them are in use."""
    terms = (
        '{"adjacency":"zero_out","created":"2026-01-01T00:00:00.000000+00:00","data":"people",'
        '"filter":{"budget":{"delta":1e-06,"epsilon":1.0,"type":"approximate_dp"},"order":22,'
        '"type":"renyi"},"fingerprint":null,"format":"dpglm ledger","id":"a","version":1}'
    )
    entry = (
        '{"charge":{"divergence":0.0275},"delta":null,"event":{"events":[{"count":3,"event":'
        '{"noise_multiplier":40.0,"type":"gaussian"},"type":"repeated"}],"type":"composed"},'
        '"id":"b","number":1,"time":"2026-01-01T00:00:00.000000+00:00","version":"0.1.0",'
        '"what":"mean","who":"somebody"}'
    )
    contents = LedgerContents.from_records([Record(json.loads(one), "") for one in (terms, entry)])
    assert canonical_json(contents.terms.to_dict()) == terms
    assert canonical_json(contents.entries[0].to_dict()) == entry


class TestExport:
    def test_comes_back_equal(self, used):
        document = json.loads(json.dumps(used.export()))
        assert LedgerContents.from_dict(document) == used.contents()

    @pytest.mark.parametrize(
        "change",
        [
            lambda d: d["records"].pop(1),
            lambda d: d["records"].pop(0),
            lambda d: d["records"].clear(),
            lambda d: d["records"][1]["record"].update(what="x"),
            lambda d: d["records"][1].pop("digest"),
            lambda d: d.update(records=3),
            lambda d: d.update(format="x"),
        ],
    )
    def test_a_changed_one_is_refused(self, used, change):
        document = used.export()
        change(document)
        with pytest.raises(LedgerError):
            LedgerContents.from_dict(document)


class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"data": ""}, "data must be text, not empty, got ''"),
            ({"data": 3}, "data must be text"),
            ({"fingerprint": " "}, "fingerprint must be text"),
            ({"budget": 1.0}, "budget must be a PrivacyBudget, got 1.0"),
            ({"adjacency": "rows"}, "adjacency must be one of"),
            ({"filter": "pld"}, "filter must be one of"),
            ({"filter": "renyi", "budget": GaussianDP(1.0)}, "budget must be ApproximateDP"),
            ({"order": 8}, "order must be None"),
        ],
    )
    def test_create(self, tmp_path, settings, message):
        with pytest.raises(ValueError, match=message):
            PrivacyLedger.create(
                tmp_path / "new", **{"data": "people", "budget": BUDGET, **settings}
            )
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((1.0, "zero_out"), "event must be an Event, got 1.0"),
            ((STEP, "rows"), "adjacency must be one of"),
            (
                (STEP, "replace_one"),
                "adjacency must match the ledger for 'people', 'zero_out'",
            ),
            (
                (PoissonSampled(0.1, STEP.event), "zero_out"),
                "filter 'renyi' or 'basic' for other events",
            ),
        ],
    )
    def test_spend(self, ledger, arguments, message):
        with pytest.raises(ValueError, match=message):
            ledger.spend(*arguments, what="a question")
        with pytest.raises(ValueError, match="what must be text"):
            ledger.spend(STEP, "zero_out", what="")
        assert ledger.contents().entries == ()

    def test_an_existing_file_is_kept(self, ledger, tmp_path):
        other = tmp_path / "notes.txt"
        other.write_text("not a ledger, but worth keeping, and longer than a header " * 9)
        for path, message in ((ledger.path, "which exists"), (other, "which exists")):
            before = path.read_bytes()
            with pytest.raises(LedgerError, match=message):
                PrivacyLedger.create(path, data="people", budget=BUDGET)
            assert path.read_bytes() == before

    def test_files_other_than_ledgers_are_refused(self, tmp_path):
        with pytest.raises(LedgerError, match="which is not a file"):
            PrivacyLedger(tmp_path / "nowhere")
        (tmp_path / "empty").touch()
        with pytest.raises(LedgerError, match="no such table"):
            PrivacyLedger(tmp_path / "empty")
        with pytest.raises(LedgerError, match="unable to open"):
            PrivacyLedger.create(tmp_path / "no folder" / "new", data="people", budget=BUDGET)
        with pytest.raises(
            ValueError, match="ledger must be a PrivacyLedger, a path or None, got 3"
        ):
            as_ledger(3)

    def test_a_ledger_of_other_data_is_refused(self, ledger):
        with pytest.raises(LedgerError, match=r"data must match .* 'people', got 'others'"):
            PrivacyLedger(ledger.path, data="others")
        with pytest.raises(LedgerError, match=r"fingerprint must match .* None, got 'v2'"):
            PrivacyLedger(ledger.path, fingerprint="v2")


def test_remaining_budget_is_epsilon_of_one_more_fit(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "l", data="people", budget=ApproximateDP(1.0, 1e-5))
    assert "left: mu 0.268051 (in one fit about epsilon 1, delta 1e-05)" in str(ledger.contents())
    whole = ApproximateDP(1.0, 1e-5).gdp_mu()
    ledger.spend(Gaussian(1.0 / (0.999 * whole)), "zero_out", what="a fit")
    said = str(ledger.contents())
    assert "in one fit about epsilon 0.0" in said
    assert "1. a fit (" in said
    own = PrivacyLedger.create(tmp_path / "m", data="people", budget=GaussianDP(1.0))
    assert "left: mu 1\n" in str(own.contents())
