# driver_check.py - counts promises, for the drivers of programs in Python.
passed = failed = 0


def check(promise, good, about=""):
    """Counts a promise, and says which is not kept."""
    global passed, failed
    passed += bool(good)
    failed += not good
    if not good:
        print("FAILED:", promise, repr(about)[:600], flush=True)


def report(name):
    """The last line; returns the status."""
    print(f"{name}: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0
