"""Make a CUDA build of torchvision importable next to a CPU build of torch.

PyPI only has CUDA builds of torchvision. Next to a CPU build of torch, the compiled operators of torchvision do not
load. Torchvision tolerates that, but on import it also registers fake implementations of the operators `nms` and
`qnms`, which torch rejects because it does not know these operators. Declaring the two operators is enough: the import
then works, and so do the image transforms that processors of VLMs use. Only calling these two operators, which filter
detected boxes, raises torchvision's own error.

`setup.sh` copies this file to the site-packages of `.venv-train` and `.venv-easyr1`, with a `.pth` file that imports it
at startup, but only if `import torchvision` fails; builds from PyTorch's CPU index do not need it. The operators are
declared only when torchvision is imported, so that other programs do not load torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any


class _BeforeTorchvision(MetaPathFinder):
    """Import hook that finds no module, but declares the operators when torchvision is imported."""

    declarations: Any = None
    """Keeps the declarations alive."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "torchvision" and cls.declarations is None:
            import torch

            cls.declarations = torch.library.Library("torchvision", "FRAGMENT")
            for operator in ("nms", "qnms"):
                cls.declarations.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


sys.meta_path.insert(0, _BeforeTorchvision)
