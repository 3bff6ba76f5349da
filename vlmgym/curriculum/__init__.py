"""Curricula: mixtures of games with stages of difficulty; see docs/curricula.md."""

from vlmgym.curriculum.file import CurriculumFile, EntryFile, StageFile
from vlmgym.curriculum.schedule import Curriculum, EntryProgress, Pick, Progress

__all__ = ["Curriculum", "CurriculumFile", "EntryFile", "EntryProgress", "Pick", "Progress", "StageFile"]
