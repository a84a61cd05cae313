"""Invariants of every state of every run (guarantees 6), judged from the event log; in a simulation also
from every watch stream and every response.

Each file is one invariant; `auditor` passes the lines to them. `view` is the stored state, `rest` the
state of a mesh at rest.
"""

from lab.scenarios.invariants.auditor import Auditor as Auditor
from lab.scenarios.invariants.auditor import Violation as Violation
from lab.scenarios.invariants.rest import unrest_of as unrest_of
