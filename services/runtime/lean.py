"""Modules that a process of the mesh does not load; its `__main__` imports this before anything else.

The logging library imports rich for its console, 5 MiB in every process; without a terminal that console is
never shown. Modules live as long as the process: nothing is collected while they are imported, and
`services.runtime.process` excludes them from later collections.
"""

import gc
import sys

gc.disable()

if not sys.stderr.isatty():
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # an import of it now fails, as if it were not there
