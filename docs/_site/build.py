"""Build the site: gather the pages, write those of the API, and run Sphinx in strict mode."""

import shutil
import sys
from pathlib import Path

import api_pages
import pages
import solver_headers
from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "site"


def main(arguments):
    """Build ``build/site/html``; any warning fails."""
    source = BUILD / "source"
    shutil.rmtree(source, ignore_errors=True)
    pages.gather(ROOT, source)
    api_pages.write(source)
    solver_headers.write(source)
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet"]
    places = ["-c", str(ROOT / "docs"), "-d", str(BUILD / "doctrees")]
    failed = build_main([*strict, *places, *arguments, str(source), str(BUILD / "html")])
    if not failed:
        print(f"The site: {(BUILD / 'html' / 'index.html').relative_to(ROOT)}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
