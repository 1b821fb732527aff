"""The theorem whose settings a plan has, and whether it runs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import final

from dpglm._validation import check_count

__all__ = ["Theorem"]

_NAME = re.compile(
    r"[a-z]\w{1,11}, (Theorem|Corollary|Algorithm) \d{1,2}(\.\d{1,2})?( \(corrected\))?",
    re.ASCII,
)


@final
@dataclass(frozen=True)
class Theorem:
    """A theorem that bounds the error of a fit, if it runs as many steps as its bound needs.

    Parameters
    ----------
    name : str
        Paper and number, such as ``"arora2022, Theorem 1"``.
    n_steps : int
        Steps that its bound needs for these public facts, at least 1.

    Notes
    -----
    Privacy: nothing rests on it, and nothing checks in a certificate that settings are those of the
    theorem.

    Examples
    --------
    >>> Theorem("arora2022, Theorem 1", 32_000).in_words(2000)
    'The bound of arora2022, Theorem 1 needs 32000 steps; 2000 are run, so it is not claimed.'
    """

    name: str
    n_steps: int

    def __post_init__(self) -> None:
        # It is said in certificates, which may come from anybody.
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"name must be a paper and a theorem's number, such as 'arora2022, Theorem 1', got "
                f"{self.name[:80]!r}"
            )
        check_count("n_steps", self.n_steps)

    def in_words(self, n_steps: int) -> str:
        """Say whether so many steps are enough.

        Parameters
        ----------
        n_steps : int
            Steps that are run.

        Returns
        -------
        str
            A sentence.
        """
        if n_steps < self.n_steps:
            return (
                f"The bound of {self.name} needs {self.n_steps} steps; {n_steps} are run, so it is "
                "not claimed."
            )
        return f"Settings and number of steps are those of {self.name}."
