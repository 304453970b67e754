"""``python -m peira`` is the ``peira`` command, where no script is on the path."""

import sys

from peira.training.cli import main

sys.exit(main())
