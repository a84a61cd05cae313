"""RuntimeClasses (node.k8s.io/v1, KEP-585). The texts are upstream's (`pkg/apis/node/validation`)."""

from apiserver_fake.registry.strategy import declare_strategy
from apiserver_fake.registry.validation.fields import Field, Struct, quantities
from apiserver_fake.registry.validation.formats import label, labels
from apiserver_fake.registry.validation.pod.placement import TOLERATION

FIELDS = Struct(
    Field("handler", missing="", form=label, is_immutable=True),
    Field("overhead", struct=Struct(Field("podFixed", rule=quantities))),
    Field("scheduling", struct=Struct(Field("nodeSelector", form=labels), Field("tolerations", items=TOLERATION))),
)
STRATEGIES = {"runtimeclasses.node.k8s.io": declare_strategy(FIELDS)}
