"""One torch thread: the arrays are small, and other work shares the cores."""

import torch

torch.set_num_threads(1)
