"""What the formats know and what this version builds.  Later work moves words from ``planned`` to ``built``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpgt_node.config.declare.kinds import PLUG_IN as PLUG_IN
from dpgt_node.config.declare.kinds import Choice, described
from dpgt_node.privacy import mechanisms
from dpgt_node.privacy.accountants import registry
from dpgt_node.privacy.laws import registry as laws
from dpgt_node.values import dataclass

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MAX_AGENTS = 10_000
MAX_ITERATIONS = 10**7
MAX_RELEASES = 10**6
"""Entries of a list with one for each release."""
MAX_DIMENSION = 10**9
MAX_ENTRIES = 10**8
MAX_CLASSES = 1 << 16
MAX_TIMEOUT_S = 1e7


@dataclass(frozen=True, slots=True)
class MethodWord:
    """What the run file knows of a method; the rest is its module's (``dpgt_node.algo.methods``).

    ``mechanisms``: those that it has, its default first.  Where a method has several forms, a mechanism is a form.
    ``keys``: its module declares keys of [method].  ``arriving``: the batch of round k is the first k+1 samples.
    """

    text: str
    mechanisms: tuple[str, ...]
    keys: bool = False
    arriving: bool = False


METHOD_WORDS: Mapping[str, MethodWord] = {
    "dpgt": MethodWord(
        "Algorithm 1: gradient tracking over two directed graphs; has every mechanism of tracking",
        tuple(one.name for one in mechanisms.TRACKING),
    ),
    "s-ab": MethodWord(
        "Algorithm 1 without noise, on graphs that are both strongly connected; multiplier = 0.0, mechanism paper",
        (mechanisms.PAPER.name,),
    ),
    "atc-dsgd": MethodWord(
        "v = x - gamma (g + noise), x+ = W v: one vector over the Metropolis weights of the undirected closure of R; "
        "mechanism noise-once; alpha, beta and C play no part",
        (mechanisms.NOISE_ONCE.name,),
    ),
    "weighted-sgd": MethodWord(
        "x+ = x - gamma sum_j p_j (g_j + noise), p_j public shares: everybody sends its gradient to everybody; alpha, "
        "beta, R and C play no part",
        (mechanisms.NOISE_ONCE.name,),
        keys=True,
    ),
    "quantised-binomial-sgd": MethodWord(
        "x+ = x - gamma (1/n) sum_j g_j, every gradient sent as an integer: clipped to a bound, rounded at random to "
        "levels, with the heads of so many coins; [method] says how many, and [noise] needs no scales",
        (mechanisms.CODED_COINS.name,),
        keys=True,
    ),
    "sampled-dsgd": MethodWord(
        "x+ = (1 - alpha s) x + alpha Wo x - gamma (g + noise): one vector over W of atc-dsgd, Wo off its diagonal; "
        "s = 1 - w_ii; beta and C play no part; two more mechanisms put the noise on the x that is sent",
        (mechanisms.NOISE_ONCE.name, mechanisms.STATE_NOISE.name, mechanisms.RELEASED_STATE.name),
        keys=True,
    ),
    "quantised-dsgd": MethodWord(
        "sampled-dsgd with noise on x, which is sent rounded at random to multiples of a step, as integers",
        (mechanisms.STATE_NOISE.name, mechanisms.RELEASED_STATE.name),
        keys=True,
    ),
    "q-dpsgd": MethodWord(
        "sampled-dsgd whose x is sent rounded at random to multiples of a step",
        (mechanisms.NOISE_ONCE.name,),
        keys=True,
    ),
    "dyn-d2p": MethodWord(
        "u+ = P (u - gamma (g + noise)), g at z = u/w, w+ = P w, P = I - beta L2: push-sum over C; alpha and R play no "
        "part; privacy.decay and noise.decay are its schedules",
        (mechanisms.NOISE_ONCE.name,),
    ),
    "dp-dsgt": MethodWord(
        "x+ = W (x - gamma y), y+ = W y + g~+ - g~, g~ = g + noise: two vectors over W of atc-dsgd; alpha, beta and C "
        "play no part",
        (mechanisms.NOISE_ONCE.name,),
    ),
    "dp-dsgd": MethodWord(
        "atc-dsgd with momentum: v = x - gamma h, h+ = mu h + g + noise",
        (mechanisms.NOISE_ONCE.name,),
        keys=True,
    ),
    "no-communication": MethodWord(
        "x+ = x - gamma (g + noise): nothing is sent; what an exchange has to beat; alpha, beta, R and C play no part",
        (mechanisms.NOISE_ONCE.name,),
    ),
    "central": MethodWord(
        "the bound beside them: one holder of all samples, x+ = x - gamma (g + noise), n m samples a gradient, 1/n of "
        "the least scale; for `dpgt simulate` alone, since data would have to leave their hosts",
        (mechanisms.NOISE_ONCE.name,),
    ),
    "gt-saga": MethodWord(
        "gradient tracking over the Metropolis weights of the undirected closure of R with SAGA: a table of every "
        "sample's last gradient; no noise, multiplier = 0.0; alpha, beta and C play no part",
        (mechanisms.PAPER.name,),
    ),
    "gt-svrg": MethodWord(
        "the same with SVRG: a full gradient in every [method] snapshot_every-th round instead of a table",
        (mechanisms.PAPER.name,),
        keys=True,
    ),
    "noisy-gt": MethodWord(
        "s+ = (1 - beta c) s + beta C (s + noise) + gamma g, x+ = (1 - alpha r) x + alpha R (x + noise) - (s+ - s): "
        "x and the running sum of gradients travel with noise, which does not add up; without noise it is Algorithm 1",
        (mechanisms.SUM_NOISE.name, mechanisms.RELEASED_SUM.name),
        keys=True,
    ),
    "online-dsgd": MethodWord(
        "x+ = (1 - alpha s) x + alpha Wo (x + noise) - gamma g over the Metropolis weights of the undirected closure "
        "of R, g the mean over the first k+1 samples; K < D; beta and C play no part",
        (mechanisms.STATE_NOISE.name, mechanisms.RELEASED_STATE.name),
        keys=True,
        arriving=True,
    ),
    "ternary-dsgd": MethodWord(
        "sampled-dsgd whose x is sent as -r, 0 or r at random and without noise; (0, delta) and no epsilon",
        (mechanisms.QUANTISED_STATE.name,),
        keys=True,
    ),
}
METHOD_MECHANISMS: Mapping[str, tuple[str, ...]] = {word: one.mechanisms for word, one in METHOD_WORDS.items()}
"""By method, the mechanisms that it has; the first is its default."""
METHODS_WITH_KEYS: tuple[str, ...] = tuple(word for word, one in METHOD_WORDS.items() if one.keys)
"""Those whose module declares keys of [method]; any other method has none."""
METHODS = Choice(
    tuple(METHOD_WORDS),
    (),
    title="Methods",
    texts=tuple(one.text for one in METHOD_WORDS.values()),
)
MECHANISMS = Choice(
    tuple(mechanisms.MECHANISMS), title="Mechanisms", texts=tuple(one.text for one in mechanisms.MECHANISMS.values())
)
LAWS = tuple(laws.LAWS)
LAWS_PLANNED: tuple[str, ...] = ()
FEATURES = described(
    "Features",
    {
        "raw": "as in the data set",
        "pool14": "196 numbers a sample: means of 2 x 2 pixels",
        "hog": (
            "392 numbers: oriented gradients, 8 signed orientations in 7 x 7 windows of 8 x 8 pixels with stride 4, "
            "square root, L2 norm 1, minus 0.04, L2 norm 1"
        ),
        "hog-shapes": (
            "392 numbers: oriented gradients in smooth windows of 12 x 12 pixels around the places of hog, square "
            "root, L2 norm 1, whitened by shaded shapes that the program draws itself, L2 norm 1; learns more than hog"
        ),
        "edges": (
            "128 numbers: oriented gradients, 8 signed orientations in 4 x 4 cells of 6 x 6 pixels, power 1.5, "
            "L1 norm 1; few and sparse, for clip_l1 and pure epsilon"
        ),
    },
    plug_in="a frozen module of your own",
)
PARTITIONS = described(
    "Partitions",
    {
        "iid": "equal parts of a random permutation",
        "contiguous": "equal parts in the order of the file",
        "shards": "sorted by label, cut into shards, dealt at random",
        "dirichlet": "each class is divided by proportions from Dirichlet(alpha, ..., alpha)",
        "inner-dirichlet": "equal sizes; each agent's mixture of classes is drawn from Dirichlet(alpha, ..., alpha)",
        "by-label": "each agent holds some classes; a class is shared equally by its holders, one without is not used",
    },
)
MODELS = described(
    "Models",
    {
        "softmax": "W phi + bias b, closed-form clipped gradients, float64; needs no torch",
        "mlp": "one hidden layer of 128 ReLUs; any samples",
        "lenet": "LeNet-5 with ReLUs and max-pooling; pictures with 1 or 3 channels",
        "cnn": "two convolutions of 32 and 64 5x5 kernels, 512 hidden units",
        "resnet18": "torchvision's, d = 11,175,370 for one channel and ten classes, 11,181,642 for three",
    },
    plug_in="your function of (shape, classes), which returns a torch.nn.Module",
)
ACCOUNTANTS = Choice(registry.EPSILONS)

_DATASETS = {
    "digits": "1,797 handwritten digits of 8 x 8, pixels/16, in the package; 359 of them are the test set",
    "mnist": "28 x 28, pixels/255; 60,000 and 10,000; `dpgt data fetch mnist` brings them into the data folder",
    "fashion-mnist": "as mnist",
    "cifar10": "3 x 32 x 32, pixels/255; the python version or the binary one in the data folder",
    "quadratic": "f_i(x) = \\|\\|x - i\\|\\|^2/2 in every coordinate, i from 1; a toy",
    "zeros": "gradient 0; a toy",
    "pl-sine": "x^2 + (3 + xi) sin^2 x + 2 xi cos x, xi ~ Lap(1/2); one unknown; a toy",
    "pl-linear": "\\|\\|A x - d\\|\\|^2/(2n) + \\|\\|x\\|\\| xi/(1 + \\|\\|x\\|\\|), xi ~ N(0, 4); a toy",
}
_FILES = {
    "npz": (
        "arrays x_train (N, p) or pictures (N, channels, height, width), grey ones also (N, height, width); "
        "y_train (N), x_test, y_test; used as they are"
    ),
    "folder": (
        "pictures PATH/train/CLASS/FILE and PATH/test/CLASS/FILE (or val), or PATH/CLASS/FILE; one size, pixels/255, "
        "classes by sorted name, agents compare the names; grey (16 bits a pixel: the upper 8), else RGB"
    ),
    "csv": (
        "a header of names, numbers only, labels 0, 1, 2, ...; test_fraction is the end of "
        "`default_rng(0).permutation(rows)`"
    ),
    "parquet": "as csv; needs `dpgt-node[parquet]`",
}
GENERATORS = described(
    "Edges, from sender to receiver",
    {
        "ring": "1 -> 2 -> ... -> n -> 1",
        "ring-chord": "the ring and one more edge",
        "path": "1 -> 2 -> ... -> n",
        "star": "the centre -> everybody else",
        "complete": "everybody -> everybody else",
        "random": "each edge with probability p",
        "circulant": "i -> i + offset for each of some offsets, modulo the agents",
        "edges": "those of a list",
    },
)
DATASETS = described("Data sets", _DATASETS)
DATASET_PREFIXES = described("Files", _FILES)
TOYS = ("quadratic", "zeros", "pl-sine", "pl-linear")
"""Objectives in closed form: no samples, no features, no model."""
STOCHASTIC_TOYS = ("pl-sine", "pl-linear")
"""Those whose every gradient is drawn anew: no finite sum."""
