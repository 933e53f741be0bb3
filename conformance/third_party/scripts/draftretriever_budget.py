"""More tokens are drafted than were asked for. With draftretriever 0.1.1."""

import os
import sys
import tempfile

import draftretriever

store = os.path.join(tempfile.mkdtemp(), "store.idx")
writer = draftretriever.Writer(file_path=store)
writer.add_entry([7] * 8)
writer.finalize()
reader = draftretriever.Reader(index_file_path=store)
_, _, rows, _, _ = reader.search([7, 7], choices=1)
print(f"asked for at most 1 draft token, got {len(rows) - 1}")
sys.exit(len(rows) - 1 > 1)
