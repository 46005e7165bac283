"""Planted faults of the transforms, the text form, the verifier, the lowering, `jit` and the program cache."""

from __future__ import annotations

from tests.faults.kinds import (
    ALGEBRA,
    FOLD,
    GRAD,
    JIT,
    OUTLINE,
    PASSES,
    SMALL,
    STRUCTURE,
    TEXT,
    Fault,
)

# ---------------------------------------------------------------------------------------------------- transforms
_TRANSFORMS = [
    Fault(
        "grad: the last use of a value counts alone",
        "transforms/grad.py",
        'cts[value] = get("add")(cts[value], grad) if value in cts else grad',
        "cts[value] = grad",
        GRAD,
        quick=True,
    ),
    Fault(
        "grad: seeds of zeros",
        "transforms/grad.py",
        "cts = [ones(t) if f else None",
        "cts = [zeros(t) if f else None",
        GRAD,
    ),
    Fault(
        "grad: constants are kept",
        "transforms/grad.py",
        "if v not in own and not _is_constant(v))",
        "if v not in own)",
        GRAD,
    ),
    Fault("grad: dead nodes ask for residuals", "transforms/grad.py", "if node in live]  #", "]  #", GRAD),
    Fault(
        "grad: nodes of expansions lose their position",
        "transforms/grad.py",
        "with where.at(entry.place):",
        "with where.at(entry.node.where):",
        GRAD,
    ),
    Fault(
        "grad: recursion goes unnoticed", "transforms/grad.py", "if name in context.running:", "if name in ():", GRAD
    ),
    Fault(
        "grad: integers are differentiated",
        "transforms/grad.py",
        "if not args[i].type.dtype.is_inexact:",
        "if False:",
        GRAD,
    ),
    Fault(
        "grad: callees are split each time",
        "transforms/grad.py",
        "if (name, wrt) not in context.callees:",
        "forward += str(len(context.fns))\n        if True:",
        GRAD,
    ),
    Fault(
        "grad: behind stop_gradient all is differentiated",
        "transforms/grad.py",
        "        if pullback is None:\n            return tuple(outputs)\n",
        "        if pullback is None:\n            pullback = lambda *_: [None] * len(inputs)\n",
        GRAD,
    ),
    Fault(
        "cse: attributes do not count",
        "transforms/cse.py",
        "tuple([(k, attr_key(attrs[k])) for k in sorted(attrs)]) if attrs else ()",
        "()",
        (*SMALL, f"{PASSES[0]}[1]"),
    ),
    Fault("cse: 0.0 and -0.0 are one", "ir/node.py", 'return "float", attr.hex()', 'return "float", attr + 0.0', SMALL),
    Fault(
        "cse: effects are merged",
        "transforms/cse.py",
        "new if has_effect(new, fns) else first",
        "first",
        SMALL,
        quick=True,
    ),
    Fault(
        "dce: effects are removed",
        "transforms/dce.py",
        "if node in live or has_effect(node, fns):",
        "if node in live:",
        SMALL,
    ),
    Fault(
        "dce: the first result alone keeps a node",
        "transforms/dce.py",
        "live: set[Node | None] = {v.node for v in fn.outputs}",
        "live: set[Node | None] = {v.node for v in fn.outputs[:1]}",
        SMALL + (f"{PASSES[0]}[0]",),
    ),
    Fault("fold: all elements become the first", "transforms/fold.py", "if same or (type", "if True or (type", FOLD),
    Fault(
        "fold: calls are computed",
        "transforms/fold.py",
        'return not (node.op.rules.get("effect") or',
        "return not (",
        (*FOLD, *SMALL),
    ),
    Fault("algebra: a - -b is a - b", "transforms/algebra.py", "return x + y\n", "return x - y\n", ALGEBRA),
    Fault(
        "algebra: x + 0.0 in strict mode",
        "transforms/algebra.py",
        "SIGN_OF_ZERO = (add_plus_zero, plus_zero_add, sum_unit_axes, add_pads)",
        "SIGN_OF_ZERO = (plus_zero_add, sum_unit_axes, add_pads)",
        ALGEBRA,
    ),
    Fault(
        "algebra: dividing by any number",
        "transforms/algebra.py",
        "or abs(math.frexp(number)[0]) != 0.5:",
        ":",
        ALGEBRA,
    ),
    Fault(
        "algebra: transposes merged the other way",
        "transforms/algebra.py",
        "perm=tuple([p[i] for i in q])",
        "perm=tuple([q[i] for i in p])",
        ALGEBRA,
    ),
    Fault(
        "algebra: casts that lose digits are left out",
        "transforms/algebra.py",
        "if not is_lossless(x.dtype, first):",
        "if False:",
        ALGEBRA,
    ),
    Fault(
        "algebra: a hole matches two values",
        "ir/rewrite.py",
        "if found.setdefault(id(pattern), value) is not value:",
        "if False:",
        (*ALGEBRA, f"{PASSES[0]}[2]"),
    ),
    Fault(
        "inline: arguments in the wrong order",
        "transforms/inline.py",
        "return build.inline(callee, inputs)",
        "return build.inline(callee, inputs if len({v.type for v in inputs}) > 1 else inputs[::-1])",
        SMALL,
    ),
    Fault(
        "inline: recursive functions too", "transforms/inline.py", "and name not in _reached(module, name)", "", SMALL
    ),
    Fault(
        "outline: layers of other attributes are one",
        "transforms/outline.py",
        "return node.op.name, attrs, tuple(",
        "return node.op.name, tuple(",
        OUTLINE,
    ),
    Fault(
        "outline: effects are copied",
        "transforms/outline.py",
        "        if has_effect(node, self.fns):\n            return -1 - place\n",
        "",
        OUTLINE,
    ),
]

# --------------------------------------------------------------------------------- text, verifier, interpreter, jit
_REST = [
    Fault(
        "printer: positions of regions are left out",
        "ir/printer.py",
        "{k}={print_attr(v, where, indent)}",
        "{k}={print_attr(v, False, indent)}",
        TEXT,
    ),
    Fault(
        "printer: long numbers are cut",
        "ir/printer.py",
        "        return str(attr)\n    raise TypeError",
        "        return str(attr)[:10]\n    raise TypeError",
        TEXT,
    ),
    Fault(
        "parser: scopes are dropped",
        "ir/parser.py",
        'json.loads(self.take("string")) if self.accept("in") else "")',
        '"" if self.accept("in") and self.take("string") else "")',
        TEXT,
    ),
    Fault(
        "parser: tuples of one become the one",
        "ir/parser.py",
        "            return tuple(items)",
        "            return tuple(items) if len(items) > 1 else items[0]",
        TEXT,
    ),
    Fault(
        "verifier: use before definition",
        "ir/verify.py",
        "            if value not in seen:",
        "            if False:",
        STRUCTURE,
    ),
    Fault(
        "verifier: types are believed",
        "ir/verify.py",
        "    if types != found:",
        "    if len(types) != len(found):",
        STRUCTURE,
    ),
    Fault(
        "verifier: calls are believed",
        "ir/verify.py",
        "if target.out_types != tuple([o.type for o in node.outputs]):",
        "if False:",
        STRUCTURE,
    ),
    Fault(
        "verifier: regions are not visited", "ir/verify.py", "            verify_fn(region, module)\n", "", STRUCTURE
    ),
    Fault(
        "interpreter: argument types are not compared",
        "ir/interp.py",
        "    if found != fn.in_types:",
        "    if False:",
        ("tests/ir/test_interp.py",),
    ),
    Fault(
        "files: the checksum is not compared",
        "ir/serial.py",
        'if not mark or checksum.strip() != b"%08x" % zlib.crc32(body):',
        "if not mark:",
        ("tests/ir/test_interp.py",),
    ),
    Fault(
        "lowering: operations without positions",
        "lower/builder.py",
        "file = None if where is UNKNOWN else self.ir",
        "file = None if True else self.ir",
        ("tests/lower/test_stablehlo.py::test_positions",),
    ),
    Fault(
        "lowering: recursion goes on for ever",
        "lower/stablehlo.py",
        "        if name in path:\n",
        "        if name in path[:0]:\n",
        ("tests/lower/test_stablehlo.py::test_recursion_is_refused_by_name",),
    ),
    Fault(
        "jit: keys forget the element type",
        "frontend/keys.py",
        "return (value.dtype, value.shape, leaf._weak)",
        "return (value.shape, leaf._weak)",
        JIT,
    ),
    Fault(
        "jit: keys forget plain values",
        "frontend/keys.py",
        "    return (type(leaf), leaf)\n",
        "    return (type(leaf),)\n",
        JIT,
    ),
    Fault(
        "jit: globals are not watched",
        "api/programs.py",
        "if changed(self.watched):",
        "if False:",
        JIT,
    ),
    Fault(
        "jit: donated memory that is held elsewhere",
        "api/programs.py",
        "    if pjrt.twins or max(map(sys.getrefcount, values)) > 3:",
        "    if False:",
        JIT,
    ),
    Fault(
        "jit: state is not written back",
        "api/programs.py",
        "            tensor._value = value\n        self._known",
        "            pass\n        self._known",
        JIT,
    ),
    Fault(
        "jit: changed arguments are not written back",
        "api/programs.py",
        "                leaves[position]._value = value\n",
        "                pass\n",
        JIT,
    ),
    Fault(
        "jit: captured tensors may change their type",
        "api/programs.py",
        "        if type_of(value) != type:\n",
        "        if False:\n",
        JIT,
    ),
    Fault(
        "cache: options are not in the key",
        "runtime/executable.py",
        "        pjrt.options_bytes(options),\n",
        "",
        ("tests/runtime/test_cache.py::test_moved_source_lines_hit_but_other_options_miss",),
    ),
    Fault(
        "cache: the processor is not in the key",
        "runtime/executable.py",
        "        device.host().identity(),\n",
        "",
        ("tests/runtime/test_cache.py::test_another_cpu_misses",),
    ),
    Fault(
        "cache: parts of a key run into each other",
        "base/cache.py",
        '        digest.update(len(data).to_bytes(8, "little"))\n',
        "",
        ("tests/runtime/test_cache.py::test_key_parts_do_not_run_into_each_other",),
    ),
    Fault(
        "cache: damage goes unseen",
        "base/cache.py",
        "if data[:_HEADER] != _MAGIC + hashlib.sha256(body).digest():",
        "if data[:8] != _MAGIC:",
        ("tests/runtime/test_cache.py::test_a_damaged_entry_is_replaced",),
    ),
    Fault(
        "cache: a folder that others may write to",
        "base/cache.py",
        '    if os.name == "posix" and info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):',
        "    if False:",
        ("tests/runtime/test_cache.py::test_a_folder_that_others_may_write_to_is_refused",),
    ),
    Fault(
        "cache: it may grow beyond its limit",
        "base/cache.py",
        "            if _room[place] < 0:\n",
        "            if place not in _room:\n",
        ("tests/runtime/test_cache.py::test_the_limit_holds_though_not_every_write_looks_at_all_entries",),
    ),
    Fault(
        "kernels: decisions outlive the templates that made them",
        "kernels/recall.py",
        "machine.text(), sizes, _sources())",
        "machine.text(), sizes)",
        ("tests/kernels/test_recall.py::test_source_cpu_and_wanted_plan_are_part_of_the_key",),
    ),
    Fault(
        "kernels: one waits for another in LLVM",
        "kernels/jit.py",
        "            with leaving.held():\n                made = _made(key, target, compile)",
        "            with _lock:\n                made = _made(key, target, compile)",
        ("tests/kernels/test_recall.py::test_kernels_compile_beside_each_other",),
    ),
]

# ------------------------------------------------------------------------------------------------------- effects
_ORDER, _EFFECTS = "tests/effects/test_order.py", "tests/effects/test_transforms.py"
_EFFECT_FAULTS = [
    Fault(
        "effects: a body that runs again acts again",
        "ops/control.py",
        "self.line.forward if stop is None else self.again",
        "self.line.forward",
        (f"{_EFFECTS}::test_once_in_the_forward_part",),
    ),
    Fault(
        "effects: a checkpointed body acts again",
        "ops/calls.py",
        "quiet(line.forward, run.context.fns)",
        "line.forward",
        (f"{_EFFECTS}::test_once_in_the_forward_part",),
    ),
    Fault(
        "effects: equal ones are merged",
        "transforms/cse.py",
        "same = new if has_effect(new, fns) else",
        "same = new if node.op.has_regions else",
        (_ORDER,),
        quick=True,
    ),
    Fault(
        "effects: the test of a loop acts before the loop only",
        "ops/effects.py",
        "(go,), token = run.inline(cond, [*consts, *carry], token)",
        "(go,), _ = run.inline(cond, [*consts, *carry], token)",
        (_ORDER,),
    ),
    Fault(
        "effects: state is donated although the program may be stopped",
        "api/programs.py",
        "donate = {} if self.acts else",
        "donate =",
        ("tests/effects/test_errors.py::test_state_is_as_before",),
    ),
    Fault(
        "effects: nobody waits for the program",
        "runtime/calling.py",
        "            pjrt.block_until_ready(outputs)\n",
        "",
        ("tests/effects/test_errors.py::test_the_runner_waits",),
    ),
    Fault(
        "effects: a callback has only its own thread's locks",
        "runtime/calling.py",
        "_runs.get(int(token), threading.get_ident())",
        "threading.get_ident()",
        ("tests/effects/test_errors.py::test_the_work_of_the_waiting_thread",),
    ),
    Fault(
        "effects: Python is called at compile time",
        "transforms/fold.py",
        "if any(isinstance(a, Host) for a in node.attrs.values()):",
        "if False:",
        ("tests/effects/test_functions.py::test_constants_do_not_call_at_compile_time",),
    ),
]

_AMP = "tests/amp/test_autocast.py::test_"
_LEVELS = "tests/amp/test_precision.py::test_"
_SCALING = "tests/amp/test_scaling.py::test_"
_PRECISION_FAULTS = [
    Fault(
        "precision: rules forget the level of their node",
        "ops/_precision.py",
        "return _at(precision if precision is HIGHEST else check(precision), rule, *args, **attrs)",
        "return _at(HIGHEST, rule, *args, **attrs)",
        (f"{_LEVELS}gradients_of_any_order_have_the_level_of_their_product",),
    ),
    Fault(
        "precision: an infinity takes part in the small products",
        "ops/_precision.py",
        "small = np.where(finite, high, np.float32(0))",
        "small = high",
        (f"{_LEVELS}what_is_not_finite_stays_what_it_is",),
    ),
    Fault(
        "precision: keys forget the setting",
        "frontend/keys.py",
        "return Key(shape, entries, casting.setting())",
        "return Key(shape, entries)",
        (f"{_LEVELS}a_compiled_function_has_a_program_for_each_level",),
    ),
    Fault(
        "autocast: what stands beside float64 is cast",
        "frontend/casting.py",
        "d is None or d in _NARROW or not d.is_inexact for d in known",
        "True for d in known",
        (f"{_AMP}nothing_is_cast_beside_float64",),
    ),
    Fault(
        "scaler: the scale grows after a step that was left out",
        "optim/scaling.py",
        "good = select(self.finite, self.good + 1, 0)",
        "good = self.good + 1",
        (f"{_SCALING}a_step_with_a_bad_gradient_is_left_out_and_lowers_the_scale",),
    ),
    Fault(
        "scaler: the optimiser's state moves in a step that is left out",
        "optim/scaling.py",
        "tensors = [*optimizer.params, *[t for _, t in optimizer._named()]]",
        "tensors = [*optimizer.params]",
        (f"{_SCALING}a_step_with_a_bad_gradient_is_left_out_and_lowers_the_scale",),
    ),
    Fault(
        "masters are not saved",
        "optim/optimizer.py",
        """        for i, master in self.masters.items():
            yield f"master.{i}", master
""",
        "",
        (f"{_SCALING}a_resumed_training_goes_on_as_if_it_had_not_stopped",),
    ),
]

COMPILER: list[Fault] = [*_TRANSFORMS, *_REST, *_EFFECT_FAULTS, *_PRECISION_FAULTS]
