"""What a process of the mesh leaves out; its `__main__` imports this before anything else.

The logging library takes rich along for its console, 5 MiB in every process; without a terminal that
console is not seen. Modules live as long as the process: nothing is collected while they are imported, and
`services.runtime.process` takes them out of later collections.
"""

import gc
import sys

gc.disable()

if not sys.stderr.isatty():
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # an import of it now fails, as if it were not there
