"""Imports shared by all workers, made before the first job: once for all that are forked."""

import os
import threading
import time

import lightning.pytorch  # noqa: F401  (takes longer than all the rest)
from tqdm import tqdm

import spacetime_en.compare.judging
import spacetime_en.training.trainer  # noqa: F401

# (PyTorch shows progress with it when e3nn compiles; a killed worker would leave a semaphore.)
tqdm.set_lock(threading.RLock())
IMPORTER = os.getpid()
IMPORT_SECONDS = time.process_time()  # (of a process that has done nothing else)
