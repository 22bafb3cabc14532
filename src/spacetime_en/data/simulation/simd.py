"""Eight trajectories in one value: a SIMD type for Numba.

``Lanes`` is a vector of W float64, one for each of W trajectories that take the same steps in
parallel. Kernels are written as if for a single number: ``a * b``, ``fma(a, b, c)``, ``rsqrt(a)``,
``load``, ``store``. LLVM maps it to whatever vectors the CPU has (AVX-512, AVX2, NEON). Each lane
does plain IEEE arithmetic, and nothing is fused or reordered unless written so: the same bits in
every lane and on every machine.

(On its own, LLVM vectorises loops over trajectories only behind run-time checks that the arrays do
not overlap, which for short loops cost as much as the work.)
"""

import operator
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

W = 8
_VECTOR = ir.VectorType(ir.DoubleType(), W)


class LanesType(types.Type):
    """The Numba type of W float64 lanes."""

    def __init__(self) -> None:
        super().__init__(name=f"Lanes{W}")


lanes = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, frontend_type: Any) -> None:
        super().__init__(manager, frontend_type, _VECTOR)


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, value=array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


@intrinsic
def load(typing_context: Any, array: Any, index: Any) -> Any:
    """The W numbers of a flat float64 array from `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_pointer(context, builder, signature.args[0], *args))
        value.align = 8
        return value

    return lanes(array, types.intp), codegen


@intrinsic
def store(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
    """Write W numbers to a flat float64 array from `index` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], pointer).align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), codegen


@intrinsic
def splat(typing_context: Any, number: Any) -> Any:
    """The same number in every lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.insert_element(
            ir.Constant(_VECTOR, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0)
        )
        zeros = ir.Constant(ir.VectorType(ir.IntType(32), W), None)
        return builder.shuffle_vector(one, ir.Constant(_VECTOR, ir.Undefined), zeros)

    return lanes(types.float64), codegen


def _binary(build: str) -> Any:
    @intrinsic
    def apply(typing_context: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, build)(*args)

        return lanes(lanes, lanes), codegen

    return apply


@intrinsic
def maximum(typing_context: Any, a: Any, b: Any) -> Any:
    """The larger of two, lane by lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return lanes(lanes, lanes), codegen


@intrinsic
def largest(typing_context: Any, a: Any) -> Any:
    """The largest of the W lanes, as a number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.extract_element(args[0], ir.Constant(ir.IntType(32), 0))
        for lane in range(1, W):
            other = builder.extract_element(args[0], ir.Constant(ir.IntType(32), lane))
            value = builder.select(builder.fcmp_ordered(">", other, value), other, value)
        return value

    return types.float64(lanes), codegen


def _overload_arithmetic(op: Any, apply: Any) -> None:
    """Overload `op` between lanes, and between lanes and a number."""

    @overload(op)
    def implementation(a, b):  # without annotations: Numba compares signatures
        if a == lanes and b == lanes:
            return lambda a, b: apply(a, b)
        if a == lanes and isinstance(b, types.Number):
            return lambda a, b: apply(a, splat(float(b)))
        if b == lanes and isinstance(a, types.Number):
            return lambda a, b: apply(splat(float(a)), b)
        return None


_overload_arithmetic(operator.add, _binary("fadd"))
_overload_arithmetic(operator.sub, _binary("fsub"))
_overload_arithmetic(operator.mul, _binary("fmul"))
_overload_arithmetic(operator.truediv, _binary("fdiv"))


@intrinsic
def fma(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.call(_declare(builder, f"llvm.fma.v{W}f64", _VECTOR, 3), args)

    return lanes(lanes, lanes, lanes), codegen


@intrinsic
def _rsqrt_estimate(typing_context: Any, a: Any) -> Any:
    """1 / sqrt(a) to seven digits: square root and division are several times faster in float32."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        single = ir.VectorType(ir.FloatType(), W)
        root = builder.call(
            _declare(builder, f"llvm.sqrt.v{W}f32", single, 1), [builder.fptrunc(args[0], single)]
        )
        one = ir.Constant(single, [1.0] * W)
        return builder.fpext(builder.fdiv(one, root), _VECTOR)

    return lanes(lanes), codegen


@intrinsic
def clip(typing_context: Any, a: Any, limit: Any) -> Any:
    """Clip each lane to [-limit, limit]."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, high = args
        low = builder.fneg(high)
        value = builder.select(builder.fcmp_ordered(">", value, high), high, value)
        return builder.select(builder.fcmp_ordered("<", value, low), low, value)

    return lanes(lanes, lanes), codegen


def _declare(builder: Any, name: str, vector: Any, arity: int) -> Any:
    return builder.module.declare_intrinsic(name, fnty=ir.FunctionType(vector, [vector] * arity))


@numba.njit(inline="always")
def rsqrt(a):
    """1 / sqrt(a) to the last digit or two: one step of Halley's method from the estimate."""
    y = _rsqrt_estimate(a)
    e = fma(splat(-1.0) * a * y, y, splat(1.0))  # 1 - a y^2, of the order 1e-7
    return fma(y * e, fma(splat(0.375), e, splat(0.5)), y)
