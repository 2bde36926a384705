"""What can be measured, by the name on the command line; nothing is imported before it is asked for."""

from __future__ import annotations

from dpgt_node.values import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """One measurement.  ``module``: below ``dpgt_node.bench``.  ``needs``: beyond the core install; empty: nothing."""

    module: str
    line: str
    needs: str = ""


CATALOGUE = {
    "rounds": Entry("speed.rounds", "rounds of launch beside a bare ring of gRPC, and the CPU time of each"),
    "wire": Entry("speed.wire", "messages and vectors encoded, decoded and checked, beside a hash of the same bytes"),
    "noise": Entry(
        "speed.noise", "privacy noise beside numpy's floating-point Laplace", "[fast] for the compiled sampler"
    ),
    "methods": Entry("speed.methods", "rounds of every method, simulate --fast beside simulate"),
    "store": Entry("speed.store", "the commit of a round beside a plain file"),
    "durability": Entry("speed.durability", "rounds with the store off, process and power, and where their time goes"),
    "watching": Entry("speed.watching", "rounds of launch with JSON logs, /metrics and the live page, beside without"),
    "disk": Entry("speed.disk", "the disk an agent needs, predicted and measured"),
    "startup": Entry("speed.startup", "time and memory of a coordinator and an agent that wait"),
    "scale": Entry("speed.scale", "a hundred agents in one process", "[torch] and MNIST; not with --model softmax"),
    "clipping": Entry(
        "speed.clipping", "gradients of a torch model with every sample clipped, beside unclipped", "[torch]"
    ),
    "resnet18": Entry("speed.resnet18", "ResNet18 through launch beside one process", "[torch] and MNIST"),
    "decoder": Entry("speed.decoder", "the decoder of captures", "tshark for --tshark"),
    "utility": Entry("studies.utility", "accuracy on pictures at a stated epsilon", "MNIST or Fashion-MNIST"),
    "planned": Entry("studies.planned", "what dpgt plan alone reaches, beside what it says", "MNIST, Fashion-MNIST"),
    "pays": Entry("studies.pays", "a run file's accuracy beside alone and central at its epsilon", "its data"),
    "section-iv": Entry("studies.section_iv", "Section IV of the paper, literally", "MNIST"),
    "threats": Entry("studies.threats", "what each vantage point infers of the demo"),
    "attacks": Entry("studies.attacks", "the attacks on MNIST beside what theory predicts", "a file of MNIST"),
    "inversion": Entry("studies.inversion", "pictures rebuilt from gradients, by noise", "[torch] and a file of MNIST"),
    "composition": Entry("studies.composition", "several runs on one data set, beside the sum of their epsilons"),
    "audit": Entry("studies.audit", "lower bounds of epsilon, and the bugs they catch"),
}
