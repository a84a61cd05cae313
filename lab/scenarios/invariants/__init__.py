"""What must hold in every state of every run (guarantees 6), judged from the event log and, in a
simulation, from every watch stream and every answer as well.

One file is one invariant; `auditor` shows them the lines. `view` is what is stored, `rest` what a mesh at rest looks
like.
"""

from lab.scenarios.invariants.auditor import Auditor as Auditor
from lab.scenarios.invariants.auditor import Violation as Violation
from lab.scenarios.invariants.rest import unrest_of as unrest_of
