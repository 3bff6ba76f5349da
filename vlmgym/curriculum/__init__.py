"""Curricula: which game, at which stage of difficulty, the next episode is played; docs/curricula.md."""

from vlmgym.curriculum.file import CurriculumFile, EntryFile, StageFile
from vlmgym.curriculum.schedule import Curriculum, EntryProgress, Pick, Progress

__all__ = ["Curriculum", "CurriculumFile", "EntryFile", "EntryProgress", "Pick", "Progress", "StageFile"]
