"""Training of VLMs on the games. Not installed with vlmgym, which never imports it."""
