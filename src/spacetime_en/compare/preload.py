"""What every worker needs, imported before its first job: once for all that are forked from one."""

import os
import threading
import time

import lightning.pytorch  # noqa: F401  (takes longer than all the rest)
from tqdm import tqdm

import spacetime_en.compare.judging
import spacetime_en.training.trainer  # noqa: F401

# (PyTorch draws progress with it when e3nn compiles; a semaphore would be left of an ended worker.)
tqdm.set_lock(threading.RLock())
IMPORTER = os.getpid()
IMPORT_SECONDS = time.process_time()  # (of a process that has done nothing else)
