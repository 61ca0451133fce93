"""The rules that let a view be one file and one line."""

from pathlib import Path

import inferdbg.tui.views
from inferdbg.tui.views import VIEWS


def test_every_file_in_views_is_registered_once() -> None:
    folder = Path(inferdbg.tui.views.__file__).parent
    files = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    assert sorted(view.view_name() for view in VIEWS) == files


def test_every_view_says_what_it_is() -> None:
    assert all(view.title and view.about for view in VIEWS)
    assert len({view.title for view in VIEWS}) == len(VIEWS) <= 9
