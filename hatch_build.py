"""Compiles the package's C file when it is built or installed, if there is a compiler."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/dpglm/data/compiled")
# NaN, infinity and the order of additions keep their meaning: no -ffast-math.
OPTIONS = ("-O3", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast")


class CustomBuildHook(BuildHookInterface[Any]):
    """Puts the compiled library next to its source, and into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; without a compiler the package is pure Python, and slower."""
        if self.target_name != "wheel":
            return
        library = FOLDER / "_kernels.compiled"
        root = Path(self.root)
        compiler = find_compiler(os.environ)
        if compiler is None:
            self.app.display_warning("no C compiler: dpglm will use its slower NumPy sums")
            return
        options, tag = options_and_tag(sys.platform, os.environ)
        # Renamed when complete, as another process may have the old library loaded.
        partial = root / f"{library}.{os.getpid()}"
        source = root / FOLDER / "_kernels.c"
        command = [*compiler, *OPTIONS, *options, "-shared", str(source), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"dpglm will use its slower NumPy sums: {done.stderr}")
            return
        partial.replace(root / library)
        build_data["artifacts"].append(library.as_posix())
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def find_compiler(environment: Mapping[str, str]) -> list[str] | None:
    """Return the command of a GCC or Clang: what ``CC`` says, or the first that is there."""
    # Microsoft's compiler lacks the vector types of the C file.
    given = environment.get("CC", "").split()
    for command in [given] if given else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]) is not None:
            return command
    return None


def options_and_tag(system: str, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Return a system's own options, and the platform tag of what they make."""
    if system == "darwin":
        # The interpreter may be universal or older than this system: the tag names what is made.
        flags = environment.get("ARCHFLAGS", "").split()
        machines = [flag for flag in flags if flag != "-arch"] or [platform.machine()]
        made = machines[0] if len(machines) == 1 else "universal2"
        oldest = environment.get("MACOSX_DEPLOYMENT_TARGET", "11.0")
        options = [option for machine in machines for option in ("-arch", machine)]
        return [*options, f"-mmacosx-version-min={oldest}"], tagged(f"macosx-{oldest}-{made}")
    # MinGW's own run-time library is not on other machines.
    options = ["-static-libgcc"] if system == "win32" else ["-fPIC"]
    return options, tagged(sysconfig.get_platform())


def tagged(name: str) -> str:
    """Return a platform's name as wheels write it."""
    return name.replace("-", "_").replace(".", "_")
