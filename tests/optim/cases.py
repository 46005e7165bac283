"""Optimisers and schedules that are compared with PyTorch, written once for both.

`python tests/optim/make_golden.py` runs them in PyTorch and writes golden.json.
"""

from typing import Any

SHAPES = ((2, 3), (3,), (2, 2, 2))
STEPS = 20

OPTIMIZERS: dict[str, Any] = {
    "adagrad": lambda o, p: o.Adagrad(p, lr=0.1),
    "adagrad options": lambda o, p: o.Adagrad(
        p, lr=0.1, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, eps=1e-3
    ),
    "rmsprop": lambda o, p: o.RMSprop(p, lr=0.01),
    "rmsprop centered": lambda o, p: o.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-3, weight_decay=0.1, centered=True),
    "rmsprop momentum": lambda o, p: o.RMSprop(p, lr=0.01, momentum=0.9),
    "adadelta": lambda o, p: o.Adadelta(p),
    "adadelta options": lambda o, p: o.Adadelta(p, lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1),
    "adamax": lambda o, p: o.Adamax(p),
    "adamax options": lambda o, p: o.Adamax(p, lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
    "nadam": lambda o, p: o.NAdam(p),
    "nadam decay": lambda o, p: o.NAdam(p, lr=0.02, weight_decay=0.1, momentum_decay=0.1),
    "nadam decoupled": lambda o, p: o.NAdam(p, lr=0.02, weight_decay=0.1, decoupled_weight_decay=True),
    "radam": lambda o, p: o.RAdam(p, lr=0.02),
    "radam short": lambda o, p: o.RAdam(p, lr=0.02, betas=(0.9, 0.9), weight_decay=0.1, decoupled_weight_decay=True),
    "rprop": lambda o, p: o.Rprop(p),
    "rprop options": lambda o, p: o.Rprop(p, lr=0.1, etas=(0.4, 1.5), step_sizes=(0.01, 0.3)),
    "adam amsgrad": lambda o, p: o.Adam(p, lr=0.02, betas=(0.8, 0.7), weight_decay=0.1, amsgrad=True),
    "adamw amsgrad": lambda o, p: o.AdamW(p, lr=0.02, betas=(0.8, 0.7), weight_decay=0.1, amsgrad=True),
    "sgd dampening": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, dampening=0.3, weight_decay=0.1),
    "adafactor": lambda o, p: o.Adafactor(p),
    "adafactor options": lambda o, p: o.Adafactor(
        p, lr=0.5, beta2_decay=-0.5, eps=(1e-5, 1e-2), d=2.0, weight_decay=0.1
    ),
    "asgd": lambda o, p: o.ASGD(p),
    "asgd averaging": lambda o, p: o.ASGD(p, lr=0.1, lambd=0.05, alpha=0.6, t0=5, weight_decay=0.1),
    "adamw groups": lambda o, p: o.AdamW(
        [{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.3, "betas": (0.5, 0.9)}], lr=0.02
    ),
    "sgd groups": lambda o, p: o.SGD([{"params": p[:2], "momentum": 0.9}, {"params": p[2:], "lr": 0.5}], lr=0.05),
    "adam, gradients missing": lambda o, p: o.Adam(p, lr=0.1),
    "nadam, gradients missing": lambda o, p: o.NAdam(p, lr=0.1),
}


def missing(name: str, step: int, index: int) -> bool:
    """Whether a parameter has no gradient at a step."""
    return "missing" in name and (step + index) % 3 == 1


RATES = 24
# name: what both libraries make of (their schedules, an optimiser)
SCHEDULES: dict[str, Any] = {
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 3),
    "linear": lambda s, o: s.LinearLR(o, 0.2, 0.8, 6),
    "polynomial": lambda s, o: s.PolynomialLR(o, 10, 2.0),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.1),
    "even restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 5),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, cycle_momentum=False),
    "cyclic 2": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 3, 5, mode="triangular2", cycle_momentum=False),
    "cyclic exp": lambda s, o: s.CyclicLR(o, 0.1, 1.0, 2, 4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "sequence": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, 1.0, 4), s.ConstantLR(o, 0.5, 3), s.ExponentialLR(o, 0.9)], [4, 9]
    ),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda t: 1 - 0.1 * (t % 3)),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 4), s.ExponentialLR(o, 0.9), s.LinearLR(o, 0.5)]),
    "swa": lambda s, o: s.SWALR(o, 0.3, anneal_epochs=7),
    "swa linear": lambda s, o: s.SWALR(o, 0.3, anneal_epochs=9, anneal_strategy="linear"),
    "one cycle linear": lambda s, o: s.OneCycleLR(o, 2.0, 25, anneal_strategy="linear", cycle_momentum=False),
    "one cycle of three": lambda s, o: s.OneCycleLR(
        o, 2.0, epochs=5, steps_per_epoch=5, three_phase=True, div_factor=10.0, cycle_momentum=False
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, factor=0.5, patience=2),
    "plateau options": lambda s, o: s.ReduceLROnPlateau(
        o, mode="max", factor=0.3, patience=1, threshold=0.1, threshold_mode="abs", cooldown=2, min_lr=0.1
    ),
}


def metric(step: int) -> float:
    """What the plateau schedules see: falling in steps, with a bump."""
    return round(1.0 / (1 + step // 5) + (0.3 if step % 7 == 3 else 0.0), 4)
