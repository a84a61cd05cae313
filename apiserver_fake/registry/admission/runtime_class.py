"""RuntimeClass: a pod gets the overhead and the scheduling constraints of its class (admission plugin RuntimeClass).

Source: upstream `plugin/pkg/admission/runtimeclass/admission.go`, KEP-688.
"""

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.errors import Forbidden
from services.api.meta import Document
from services.api.quantity import milli

RUNTIME_CLASSES = "runtimeclasses.node.k8s.io"


def set_runtime_class(new: Document, spec: Document, ctx: WriteContext) -> None:
    """Set the overhead and scheduling constraints of its RuntimeClass in the spec of `new`.

    Raises: Forbidden for an unknown class, and for an overhead or a node selector other than that of the class.
    """

    def refusal(why: str) -> Forbidden:
        meta = new["metadata"]
        return forbidden("pods", meta.get("name") or meta.get("generateName") or "", why)

    name, overhead = spec.get("runtimeClassName"), spec.get("overhead")
    if name is None:
        if overhead:
            raise refusal("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
        return
    runtime_class = ctx.lookup(RUNTIME_CLASSES, "", name)
    if runtime_class is None:
        raise refusal(f'pod rejected: RuntimeClass "{name}" not found')
    fixed = (runtime_class.get("overhead") or {}).get("podFixed") or {}
    if "overhead" in runtime_class:
        if overhead and not _is_same(overhead, fixed):
            raise refusal("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
        spec["overhead"] = dict(fixed)
    elif overhead:
        raise refusal("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    scheduling = runtime_class.get("scheduling") or {}
    selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            text = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = "
            raise refusal(text + selector[key])
    if selector:
        spec["nodeSelector"] = selector
    if more := scheduling.get("tolerations"):
        tolerations = list(spec.get("tolerations") or [])
        spec["tolerations"] = tolerations + [each for each in more if each not in tolerations]


def _is_same(one: Document, other: Document) -> bool:
    try:
        return {name: milli(text) for name, text in one.items()} == {name: milli(text) for name, text in other.items()}
    except ValueError:
        return False
