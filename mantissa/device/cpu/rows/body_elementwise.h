// Element-wise functions of one and two operands, and select. See body_loops.h for how this file is used.
#pragma once

#include "mantissa/device/cpu/rows/body_loops.h"
#include "mantissa/numerics/elementary_body.h"

namespace mantissa::inline v0::on_cpu {
namespace {

/// Reads an operand of any format: which one is asked every sixteen elements, always with the same answer,
/// which costs nothing beside the memory. Formats as template arguments would make nine loops of each
/// function.
template <class Extent>
MANTISSA_LANES Float read(const ElementwiseOperand& operand, std::int64_t c, Extent extent) {
    const auto from = [&](auto* type) MANTISSA_BODY {
        const auto* data = as(operand.view, type);
        if (operand.repeats) return Lanes::constant(lane_of(data));
        return load_ahead(data + c, extent);
    };
    switch (operand.view.type) {
        case DType::bf16:
            return from(static_cast<BF16*>(nullptr));
        case DType::f16:
            return from(static_cast<FP16*>(nullptr));
        default:
            return from(static_cast<float*>(nullptr));
    }
}

template <ElementwiseFunction function>
MANTISSA_LONG_LANES Float apply(Float a, Float b) {
    using enum ElementwiseFunction;
    // At NaN in a, a; the comparison alone lets a NaN in b through.
    const auto first_if = [&](Lanes::Mask mask) MANTISSA_BODY {
        return Lanes::select(Lanes::is_nan(a), a, Lanes::select(mask, a, b));
    };
    if constexpr (function == add) return Lanes::add(a, b);
    if constexpr (function == subtract) return Lanes::subtract(a, b);
    if constexpr (function == multiply) return Lanes::multiply(a, b);
    if constexpr (function == divide) return Lanes::divide(a, b);
    if constexpr (function == maximum) return first_if(Lanes::less(b, a));
    if constexpr (function == minimum) return first_if(Lanes::less(a, b));
    if constexpr (function == negate) return Lanes::negate(a);
    if constexpr (function == exp) return elementary::exp(lanes, a);
    if constexpr (function == log) return elementary::log(lanes, a);
    if constexpr (function == tanh) return elementary::tanh(lanes, a);
    if constexpr (function == erf) return elementary::erf(lanes, a);
    if constexpr (function == sin) return elementary::sin(lanes, a);
    if constexpr (function == cos) return elementary::cos(lanes, a);
    if constexpr (function == square_root) return Lanes::square_root(a);
    if constexpr (function == reciprocal_root)
        return Lanes::divide(Lanes::constant(1.0f), Lanes::square_root(a));
}

template <ElementwiseFunction function, class Y>
void apply_to_piece(const Elementwise& p, Y* y, bool stream) {
    const bool is_binary = p.operands[1].view.data != nullptr;
    for_lanes(p.count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const Float a = read(p.operands[0], c, extent);
        const Float b = is_binary ? read(p.operands[1], c, extent) : a;
        store(y + c, apply<function>(a, b), extent, stream);
    });
}

template <class Y>
void select_piece(const Elementwise& p, Y* y, bool stream) {
    for_lanes(p.count, [&](std::int64_t c, auto extent) MANTISSA_BODY {
        const int lanes_used = lanes_in(extent);
        const Lanes::Mask mask = p.condition_repeats ? Lanes::mask_of(p.condition, 1, true)
                                                     : Lanes::mask_of(p.condition + c, lanes_used, false);
        const Float a = read(p.operands[0], c, extent), b = read(p.operands[1], c, extent);
        store(y + c, Lanes::select(mask, a, b), extent, stream);
    });
}

template <class Y>
void elementwise_as(const Elementwise& p, Y* y, bool stream) {
    using enum ElementwiseFunction;
    switch (p.function) {
        case add:
            return apply_to_piece<add>(p, y, stream);
        case subtract:
            return apply_to_piece<subtract>(p, y, stream);
        case multiply:
            return apply_to_piece<multiply>(p, y, stream);
        case divide:
            return apply_to_piece<divide>(p, y, stream);
        case maximum:
            return apply_to_piece<maximum>(p, y, stream);
        case minimum:
            return apply_to_piece<minimum>(p, y, stream);
        case negate:
            return apply_to_piece<negate>(p, y, stream);
        case exp:
            return apply_to_piece<exp>(p, y, stream);
        case log:
            return apply_to_piece<log>(p, y, stream);
        case tanh:
            return apply_to_piece<tanh>(p, y, stream);
        case erf:
            return apply_to_piece<erf>(p, y, stream);
        case sin:
            return apply_to_piece<sin>(p, y, stream);
        case cos:
            return apply_to_piece<cos>(p, y, stream);
        case square_root:
            return apply_to_piece<square_root>(p, y, stream);
        case reciprocal_root:
            return apply_to_piece<reciprocal_root>(p, y, stream);
        case select:
            return select_piece(p, y, stream);
    }
}

void elementwise_piece(const Elementwise& p, Stores stores) {
    with_type(p.y.type, [&](auto* type) {
        auto* y = as(p.y, type);
        elementwise_as(p, y, may_stream(stores, y));
    });
    if (stores == Stores::streaming) Lanes::fence();
}

}  // namespace
}  // namespace mantissa::on_cpu
