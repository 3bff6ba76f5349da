"""The gallery: every game at every level, as a page and as a poster.

exhibits.py    games, states and captions
responses.py   three scored responses to a state
page.py        self-contained HTML page without scripts
poster.py      one image of all games and levels
command.py     `vlmgym gallery`
"""
