"""Compiles the package's C file when it is built or installed, if there is a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
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
        compiler = os.environ.get("CC", "cc").split()
        root = Path(self.root)
        if sys.platform == "win32" or shutil.which(compiler[0]) is None:
            self.app.display_warning("no C compiler: dpglm will use its slower NumPy sums")
            return
        # Renamed when complete, as another process may have the old library loaded.
        partial = root / f"{library}.{os.getpid()}"
        source = root / FOLDER / "_kernels.c"
        command = [*compiler, *OPTIONS, "-shared", "-fPIC", str(source), "-o", str(partial)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            self.app.display_warning(f"dpglm will use its slower NumPy sums: {done.stderr}")
            return
        partial.replace(root / library)
        build_data["artifacts"].append(str(library))
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
