"""The package does not grow unseen: raise a limit only with a reason in the commit."""

from benchmarks.size import counts

LIMITS = {
    "files": 270,
    "classes": 633,
    "abstract classes": 47,
    "lines": 79_110,
    "code lines": 48_990,
}


def test_package_stays_within_its_size():
    found = counts()
    assert {what: found[what] for what in LIMITS if found[what] > LIMITS[what]} == {}


def test_counts_of_a_known_file(tmp_path):
    (tmp_path / "one.py").write_text(
        '"""Title."""\n\nimport abc  # a comment\n\n# Another.\n\n\n'
        'class One(abc.ABC):\n    """Text\n    of two lines."""\n\n'
        '    @abc.abstractmethod\n    def act(self):\n        return """a\nb"""\n'
    )
    assert counts(tmp_path) == {
        "files": 1,
        "classes": 1,
        "abstract classes": 1,
        "lines": 15,
        "code lines": 6,
    }
