"""The gallery: every game at every level on one page, and on one image.

exhibits.py    which games, in which positions, and what is said of each
responses.py   three responses to a position, really scored
page.py        the page: HTML without a script, which holds all its images
poster.py      one image of all games and levels
command.py     `vlmgym gallery`
"""
