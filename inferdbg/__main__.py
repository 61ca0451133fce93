"""``python -m inferdbg``: the command, where its script is not on the PATH."""

import sys

from inferdbg.cli.main import main

sys.exit(main())
