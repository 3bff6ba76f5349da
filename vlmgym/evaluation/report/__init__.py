"""The report of a run, `report.html`: scores, curves and an episode viewer.

The page opens from disk, makes no network requests and needs no build step. It contains two kinds of data:

- the page's data: everything shown initially, and a summary row per game and seed. It is part of the page.
- `make_episode`: text and images of one episode. Small runs are part of the page; otherwise episodes are grouped into
  scripts in a folder next to the page, loaded on demand (a page opened from disk may load scripts, but not fetch data).

A page shows one or two runs. With two (`compare.html`), the viewer has a pane per run and both step together; results
of the comparison are passed as plain-text tables.

Recorded text is escaped and only ever becomes text nodes; a content security policy allows only the page's own scripts.
"""

from vlmgym.evaluation.report.command import write_report
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import write_page
from vlmgym.evaluation.summary_table import PageTable

__all__ = ["LabelledRun", "PageTable", "write_page", "write_report"]
