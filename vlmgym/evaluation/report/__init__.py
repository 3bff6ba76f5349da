"""The report of a run, `report.html`: scores, curves and an episode viewer.

The page opens from disk, makes no network requests and needs no build step. It contains two kinds of data:

- page data: everything shown initially, and a summary row per game and seed. This data is always part of the page.
- episode data, made by `make_episode`: text and images of one episode. The episodes of a small run are part of the
  page. The episodes of a larger run are grouped into scripts in a folder next to the page, which are loaded on demand
  (a page opened from disk may load scripts, but not fetch data).

A page shows one or two runs. With two (`compare.html`), the viewer has a pane per run, and both panes change turns
together; results of the comparison are passed as plain-text tables.

Recorded text is escaped and only ever becomes text nodes; a content security policy allows only the page's own scripts.
"""

from vlmgym.evaluation.report.command import write_report
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import write_page
from vlmgym.evaluation.summary_table import PageTable

__all__ = ["LabelledRun", "PageTable", "write_page", "write_report"]
