"""What every worker needs, imported before its first job: once for all that are forked from one."""

import os
import time

import lightning.pytorch  # noqa: F401  (takes longer than all the rest)

import spacetime_en.compare.judging
import spacetime_en.training.trainer  # noqa: F401

IMPORTER = os.getpid()
IMPORT_SECONDS = time.process_time()  # (of a process that has done nothing else)
