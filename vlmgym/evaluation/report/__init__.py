"""The page of a run, `report.html`: scores, curves, and a viewer that steps through every episode.

The page opens from disk, asks no network for anything, and needs no build. It is made of two kinds of data:

- `page_data`: what is shown at once, and a light row for each pair of game and seed. It is part of the page.
- `episode_data`: all of one episode, texts and images. All episodes are part of the page while they are small;
  otherwise scripts in a folder beside the page hold some of them each, and the page loads a script when one of its
  episodes is looked at (a page opened from disk may load scripts beside it, but may not fetch data).

A page holds one run or two. With two (`compare.html`), a row of the list stands for a game and a seed, the viewer has a
pane for each run, and both step together; what the comparison itself says is handed in as tables of plain text:

    runs = [LabelledRun("baseline", ...), LabelledRun("trained", ...)]
    table = PageTable("Difference", ("", "2048-v0"), [("trained - baseline", "+12.3 (+3.1 to +21.0)")])
    write_page(path, runs, title="baseline against trained", workers=workers, tables=[table])

Recorded text is data, wherever it comes from: it is escaped in the page, becomes text nodes and nothing else, and a
content security policy allows no script but the page's own.

    images.py   images of an episode as tiles, each kept once
    texts.py      marks the sections of responses, shortens, writes JSON that is safe inside HTML
    episode.py    all of one episode, made in worker processes
    facts.py      what is shown at once: facts, summaries, curves
    document.py   style and content security policy, which other pages share
    store.py      episodes inside the page, or in files beside it
    page.py       puts the page together and writes it
    command.py    `vlmgym report`, and the page of a run that was just played
    assets/       the page's HTML, CSS and scripts
"""

from vlmgym.evaluation.report.command import write_report
from vlmgym.evaluation.report.facts import LabelledRun
from vlmgym.evaluation.report.page import PageTable, write_page

__all__ = ["LabelledRun", "PageTable", "write_page", "write_report"]
