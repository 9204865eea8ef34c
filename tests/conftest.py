"""One torch thread, here and in what tests start: arrays are small, and other work shares cores."""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded, which the first process never does
