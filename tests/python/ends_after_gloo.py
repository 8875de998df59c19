"""Runs a program of several ranks on gloo:  ends_after_gloo.py PROGRAM [ARGUMENT ...]

gloo's threads let go of what they did last when they come to it. If Python is ending by then, torch aborts (its issue
190489). Groups that destroy_process_group has left alive cannot be waited for; threads that only have this to do can.
"""

import runpy
import sys
import time

sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
time.sleep(0.2)  # without the interpreter's lock
