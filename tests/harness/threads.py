"""Work that is done by many threads at once, and a thread of a process that hangs."""

import contextlib
import ctypes
import os
import threading

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


def ptrace(request, thread):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(request, thread, None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def stopped_worker(headgate):
    """One thread of the process is stopped; all others go on."""
    worker = max(int(name) for name in os.listdir(f"/proc/{headgate.process.pid}/task"))
    assert worker != headgate.process.pid
    ptrace(PTRACE_SEIZE, worker)
    ptrace(PTRACE_INTERRUPT, worker)
    os.waitpid(worker, 0x40000000)
    try:
        yield
    finally:
        try:
            ptrace(PTRACE_DETACH, worker)
        except ProcessLookupError:
            # It has ended, which its tracer is told first.
            os.waitpid(worker, 0x40000000)


def at_once(work, count, seconds=60):
    """work(0) to work(count - 1), each in a thread of its own: none of them raises, and all end in time."""
    raised = []

    def run(number):
        try:
            work(number)
        except Exception as error:
            raised.append((number, repr(error)))

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive()
    assert raised == []
