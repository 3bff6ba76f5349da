"""Training of VLMs on games: on one machine (`vlmgym train`), and distributed with EasyR1."""
