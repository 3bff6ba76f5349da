"""Training of VLMs on the games, and what serves the checkpoints. Not installed with vlmgym, which never imports it."""
