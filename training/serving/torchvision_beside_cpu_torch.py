"""Lets a CUDA build of torchvision be imported beside a CPU build of torch.

PyPI has torchvision as a CUDA build only. Beside a torch without CUDA its compiled operators do not load. It tolerates
that, but when imported it also tells torch how two of them behave, `nms` and `qnms`, and torch refuses what it is told
of operators that it does not know. Declaring them is enough: importing works, and so does what processors of VLMs take
from torchvision, the transforms of images. Who calls one of the two (they filter detected boxes) gets torchvision's
own error.

`setup.sh` puts this file into the site-packages of `.venv-serve` and `.venv-train` with a `.pth` file that imports it
whenever that Python starts, and only where `import torchvision` fails: the builds of PyTorch's CPU index need no
mending. It waits for the import of torchvision, so that other programs do not load torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


class _BeforeTorchvision(MetaPathFinder):
    """Finds nothing; declares the operators when torchvision is looked for."""

    declarations: Any = None
    """Torch forgets what was declared when this is gone."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "torchvision" and cls.declarations is None:
            import torch

            cls.declarations = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                cls.declarations.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, _BeforeTorchvision)
