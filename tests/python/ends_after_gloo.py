"""Runs a program of several ranks on gloo:  ends_after_gloo.py PROGRAM [ARGUMENT ...]

torch aborts if a thread of gloo's lets go of its last work while Python is ending (its issue 190489).
destroy_process_group does not wait for these threads, and has nothing to wait for them by; so they get a moment.
"""

import runpy
import sys
import time

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
time.sleep(0.2)  # without the interpreter's lock
