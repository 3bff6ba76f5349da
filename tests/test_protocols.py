"""benchmarks/protocols.py, with few episodes and a separate page."""

from pathlib import Path

from benchmarks import protocols
from tests.playing import summarise
from vlmgym.evaluation import evaluate

PAGE = "before\n<!-- baselines -->\nold\n<!-- /baselines -->\n<!-- published -->\n<!-- /published -->\nafter\n"
ROOT = Path(__file__).parent.parent


def run(folder: Path, *args: str) -> str:
    page = folder / "page.md"
    page.write_text(PAGE)
    protocols.main([*args, "--workers", "0", "--output-dir", str(folder / "kept"), "--page", str(page)])
    return page.read_text()


def test_scores_agree_with_evaluate(tmp_path: Path) -> None:
    page = run(tmp_path, "--games", "g1/shisensho-6x6", "geospot", "--episodes", "3")
    assert page.startswith("before\n<!-- baselines -->\n| setting |")
    assert page.endswith("<!-- /published -->\nafter\n")
    assert "old" not in page
    for setting, policy in (("g1/shisensho-6x6", "random"), ("geospot", "random"), ("geospot", "oracle")):
        summary = summarise(evaluate(setting, policy, 3, workers=0))
        score = f"{summary.score_mean:.4g}" + (f" ± {summary.score_stderr:.2g}" if summary.score_stderr else "")
        assert f"| `{setting}` | {policy} | 3 | {score} |" in page
    assert "| `vlm-gym/geospot` | | | same game as `geospot` |" in page
    assert "`swap`" not in page.replace("same game as `swap`", "")


def test_committed_page_has_all_rows() -> None:
    text = (ROOT / "docs" / "protocols.md").read_text()
    for setting in protocols.SETTINGS:
        assert f"| `{setting.name}` |" in text
    for row in protocols.COMPARISONS:
        assert f"| {row.game} | " in text
