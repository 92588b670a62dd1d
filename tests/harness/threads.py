"""Work that is done by many threads at once."""

import threading


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
