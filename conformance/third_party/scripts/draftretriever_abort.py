"""A small budget or a short context ends the process. With draftretriever 0.1.1."""

import subprocess
import sys

SEARCH = """
import os, tempfile, draftretriever
store = os.path.join(tempfile.mkdtemp(), "store.idx")
writer = draftretriever.Writer(file_path=store)
writer.add_entry([1, 2, 3, 4, 5])
writer.finalize()
reader = draftretriever.Reader(index_file_path=store)
try:
    reader.search({context}, choices={choices})
except BaseException as error:
    print("an exception", error)
"""
codes = []
for context, choices in (([1, 2], 2), ([1, 2], 1), ([2], 24)):
    program = SEARCH.format(context=context, choices=choices)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = " ".join(done.stderr.splitlines()[:2])
    print(f"search({context}, choices={choices}): exit code {done.returncode} {said}")
    codes.append(done.returncode)
sys.exit(any(codes))
