"""Every moment at which SQLite changes a file, so that a process can be ended at each of them."""

import _sqlite3
import ctypes
import os
import signal

WORD, POINTER, SIZE = ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t
OFFSET, TEXT = ctypes.c_int64, ctypes.c_char_p
SET = ctypes.CFUNCTYPE(WORD, POINTER, TEXT, POINTER)
GET = ctypes.CFUNCTYPE(POINTER, POINTER, TEXT)
# The system calls with effects that another process can observe, and their types.
WRITES = {
    b"write": (ctypes.c_ssize_t, WORD, POINTER, SIZE),
    b"pwrite": (ctypes.c_ssize_t, WORD, POINTER, SIZE, OFFSET),
    b"pwrite64": (ctypes.c_ssize_t, WORD, POINTER, SIZE, OFFSET),
}
OTHERS = {
    b"open": (WORD, TEXT, WORD, WORD),
    b"ftruncate": (WORD, WORD, OFFSET),
    b"unlink": (WORD, TEXT),
}


class System(ctypes.Structure):
    """SQLite's ``sqlite3_vfs``, used only to reach its system calls."""

    _fields_ = (
        ("version", WORD),
        ("sizes", WORD * 2),
        ("names_and_methods", POINTER * 16),
        ("set_call", SET),
        ("get_call", GET),
    )


LIBRARY = ctypes.CDLL(getattr(_sqlite3, "__file__", None))


def can_be_seen():
    """Whether this SQLite lets its system calls be replaced."""
    return hasattr(LIBRARY, "sqlite3_vfs_find")


class Moments:
    """Counts moments, and ends the process without a word when ``left`` of them have passed.

    There is one before each change of a file, one in the middle of each write, and one wherever
    ``pass_one`` is called.
    """

    def __init__(self):
        self.left = None
        find = LIBRARY.sqlite3_vfs_find
        find.restype, find.argtypes = ctypes.POINTER(System), (TEXT,)
        self._system = find(None)
        self._kept = [
            self._replaced(name, kind, replacement)
            for calls, replacement in ((WRITES, self._torn), (OTHERS, self._whole))
            for name, kind in calls.items()
        ]

    def pass_one(self):
        """Let a moment pass."""
        if self._is_last():
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_last(self):
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0

    def _replaced(self, name, kind, replacement):
        """Replace a system call by a function; return the objects that must outlive the calls."""
        address = self._system.contents.get_call(self._system, name)
        if not address:  # of another system
            return None
        prototype = ctypes.CFUNCTYPE(*kind, use_errno=True)
        call = prototype(replacement(prototype(address)))
        self._system.contents.set_call(self._system, name, ctypes.cast(call, POINTER))
        return call

    def _whole(self, original):
        def call(*arguments):
            self.pass_one()
            return original(*arguments)

        return call

    def _torn(self, original):
        def write(file, data, size, *offset):
            self.pass_one()
            if self._is_last():
                original(file, data, size // 2, *offset)
                os.kill(os.getpid(), signal.SIGKILL)
            return original(file, data, size, *offset)

        return write
