"""`dpglm monitor`: text and page of a comparison."""


def test_folders_of_reports_are_compared(run, files):
    for name in ("before", "after"):
        options = ("--schema", "schema.json", "--epsilon", "2", "--report", name)
        assert run("describe", "people.csv", *options).exit_code == 0
    done = run("monitor", "before", "after", "--page", "drift.html")
    assert done.exit_code == 0, done.output
    assert "Population stability index" in done.stdout
    assert "Distributions" in (files / "drift.html").read_text()
    again = run("monitor", "before", "after", "--page", "drift.html")
    assert again.exit_code == 2
    assert "exists already" in again.output


def test_file_without_result_is_refused(run, files):
    done = run("monitor", "schema.json", "schema.json")
    assert done.exit_code == 2
    assert "two descriptions" in done.output
    assert "Traceback" not in done.output
