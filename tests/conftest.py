"""One torch thread, here and in what tests start: arrays are small, and other work shares cores."""

import gc
import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch is loaded, which the first process never does
gc.set_threshold(700, 10, 100)  # to look through all of torch takes half a second each time
