// The update: AdamW, SGD, Muon, and the norm of all gradients with their finite test.
#include <algorithm>
#include <cmath>

#include "mantissa/graph/ops/rules.h"

namespace mantissa::inline v0 {

namespace {

using namespace rules;

std::vector<Type> global_norm_types(const OpCall& call) {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) expect_floating(call, i);
    return {{DType::f32, {}}, {DType::boolean, {}}};
}

/// gradients... -> Euclidean norm of all their elements, whether every element is finite. In FP64, where
/// squares of FP32 numbers cannot overflow.
std::vector<Tensor> global_norm_definition(const DefinitionCall& call) {
    Tensor total;
    for (const Tensor& stored : call.inputs) {
        const Tensor gradient = cast(stored, DType::f64);
        std::vector<std::int64_t> axes;
        for (int axis = 0; axis < gradient.rank(); ++axis) axes.push_back(axis);
        const Tensor squares = sum(gradient * gradient, axes);
        total = total ? total + squares : squares;
    }
    return {cast(sqrt(total), DType::f32), is_finite(total)};
}

std::vector<Type> adamw_types(const OpCall& call) {
    const Type& p = call.inputs[0];
    for (std::size_t i : {0u, 1u, 2u, 3u}) {
        expect_floating(call, i);
        expect_shape(call, i, p.shape);
    }
    for (std::size_t i : {4u, 5u, 6u, 7u}) expect_shape(call, i, {});
    expect_dtype(call, 5, DType::f64);
    expect_dtype(call, 7, DType::boolean);
    if (call.inputs.size() == 8) return {p, call.inputs[2], call.inputs[3]};
    expect_floating(call, 8);
    expect_shape(call, 8, p.shape);
    return {p, call.inputs[2], call.inputs[3], call.inputs[8]};
}

/// The value that an update writes: `updated`, rounded to the type of `old`, or `old` itself.
Tensor kept_unless(Tensor apply, Tensor updated, Tensor old) {
    return select(apply, cast(updated, old.dtype()), old);
}

/// parameter, gradient, m, v, learning rate, step (f64, counted from 1), gradient scale, apply -> parameter,
/// m, v. With a copy of the parameter in another format as ninth operand, the copy of the new one comes
/// fourth: that parameter, rounded once. Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR
/// 2019, algorithm 2. Where `apply` is false everything stays as it was, to the bit.
std::vector<Tensor> adamw_definition(const DefinitionCall& call) {
    const auto& in = call.inputs;
    const Attributes& a = call.attributes;
    const double beta1 = a.number("beta1"), beta2 = a.number("beta2");
    const Tensor p = as_f32(in[0]), m = as_f32(in[2]), v = as_f32(in[3]);
    const Tensor rate = as_f32(in[4]), step = in[5], apply = in[7];
    const Tensor gradient = as_f32(in[1]) * as_f32(in[6]);
    // 1 - beta^t in FP64: in FP32 it would keep few digits while t is small.
    const auto correction = [&](double beta) { return cast(-exp(step * std::log(beta)) + 1.0, DType::f32); };
    // In FP32, too, the share that a moment keeps and the share that it takes add up to 1.
    const auto rest = [](double beta) { return 1.0 - static_cast<double>(static_cast<float>(beta)); };
    const Tensor next_m = m * beta1 + gradient * rest(beta1);
    const Tensor next_v = v * beta2 + gradient * gradient * rest(beta2);
    const Tensor denominator = sqrt(next_v) / sqrt(correction(beta2)) + a.number("epsilon");
    const Tensor decayed = p * (-(rate * a.number("weight_decay")) + 1.0);
    const Tensor next_p = decayed - next_m * (rate / correction(beta1)) / denominator;
    std::vector<Tensor> outputs = {kept_unless(apply, next_p, in[0]), kept_unless(apply, next_m, in[2]),
                                   kept_unless(apply, next_v, in[3])};
    if (in.size() == 9) outputs.push_back(kept_unless(apply, cast(next_p, in[0].dtype()), in[8]));
    return outputs;
}

bool has_momentum(const Attributes& attributes) { return attributes.number("momentum") > 0; }

std::size_t sgd_copy(const Attributes& attributes) { return has_momentum(attributes) ? 7 : 5; }

std::vector<Type> sgd_types(const OpCall& call) {
    const std::size_t given = call.inputs.size(), copy = sgd_copy(call.attributes);
    expect(given == copy || given == copy + 1,
           "with momentum {} it takes {} operands, and a copy if there is one, got {}",
           call.attributes.number("momentum"), copy, given);
    const Type& p = call.inputs[0];
    std::vector<Type> outputs = {p};
    for (std::size_t i = 0; i < given; ++i) {
        const bool is_tensor = i < 2 || i == 5 || i == copy;
        expect_shape(call, i, is_tensor ? p.shape : Shape{});
        if (i != 4) expect_floating(call, i);
        if (is_tensor && i >= 5) outputs.push_back(call.inputs[i]);
    }
    expect_dtype(call, 4, DType::boolean);
    if (has_momentum(call.attributes)) expect_dtype(call, 6, DType::f64);
    return outputs;
}

/// parameter, gradient, learning rate, gradient scale, apply; with momentum also buffer and step (f64,
/// counted from 1); and a copy, if any -> parameter, buffer, copy. As PyTorch's SGD (Sutskever, Martens,
/// Dahl, Hinton, "On the importance of initialization and momentum in deep learning", ICML 2013, with the
/// rate outside of the buffer): decay is added to the gradient, and the first buffer is the gradient, not
/// dampened. Where `apply` is false everything stays as it was, to the bit.
std::vector<Tensor> sgd_definition(const DefinitionCall& call) {
    const auto& in = call.inputs;
    const Attributes& a = call.attributes;
    const double momentum = a.number("momentum"), decay = a.number("weight_decay");
    const Tensor p = as_f32(in[0]), rate = as_f32(in[2]), apply = in[4];
    Tensor gradient = as_f32(in[1]) * as_f32(in[3]);
    if (decay > 0) gradient = gradient + p * decay;
    Tensor direction = gradient, next_buffer;
    if (has_momentum(a)) {
        const Tensor moved = as_f32(in[5]) * momentum + gradient * (1.0 - a.number("dampening"));
        const Tensor is_first = equal(in[6], constant(call.graph, 1.0, DType::f64));
        next_buffer = select(is_first, gradient, moved);
        direction = a.flag("nesterov") ? gradient + next_buffer * momentum : next_buffer;
    }
    const Tensor next_p = p - direction * rate;
    std::vector<Tensor> outputs = {kept_unless(apply, next_p, in[0])};
    if (next_buffer) outputs.push_back(kept_unless(apply, next_buffer, in[5]));
    const std::size_t copy = sgd_copy(a);
    if (in.size() > copy) outputs.push_back(kept_unless(apply, cast(next_p, in[0].dtype()), in[copy]));
    return outputs;
}

std::int64_t sgd_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& attributes) {
    std::int64_t each = 3;  // scale; step
    if (attributes.number("weight_decay") > 0) each += 2;
    if (has_momentum(attributes)) each += attributes.flag("nesterov") ? 5 : 3;
    return each * inputs[0].shape.elements();
}

/// Operands before a copy.
constexpr std::size_t muon_operands = 6;

std::vector<Type> muon_types(const OpCall& call) {
    const Type& p = call.inputs[0];
    expect(p.shape.rank() == 2, "Muon is for matrices, got {}", p.text());
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const bool is_tensor = i < 3 || i == muon_operands;
        expect_shape(call, i, is_tensor ? p.shape : Shape{});
        if (i != 5) expect_floating(call, i);
    }
    expect_dtype(call, 5, DType::boolean);
    const std::string& format = call.attributes.word("format");
    expect(format == "f32" || format == "bf16", "iterations are in f32 or bf16, got {}", format);
    std::vector<Type> outputs = {p, call.inputs[2]};
    if (call.inputs.size() > muon_operands) outputs.push_back(call.inputs[muon_operands]);
    return outputs;
}

/// The nearest matrix with orthogonal rows, or columns if there are fewer, or its estimate after five
/// iterations: singular values between 0.7 and 1.2. A quintic by Newton and Schulz that is steepest at 0
/// (Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; coefficients from there).
Tensor orthogonalised(Tensor x, const Attributes& a) {
    constexpr double linear = 3.4445, cubic = -4.7750, quintic = 2.0315;
    const bool in_bf16 = a.word("format") == "bf16" && x.dtype() == DType::f32;
    const auto narrowed = [&](Tensor y) { return in_bf16 ? cast(y, DType::bf16) : y; };
    // Products are summed, and added up, in FP32 whatever they multiply.
    const auto product = [&](Tensor left, Tensor right, bool transpose_left, bool transpose_right) {
        MatmulOptions options{.transpose_a = transpose_left, .transpose_b = transpose_right};
        if (in_bf16) options.output = DType::f32;
        return matmul(left, right, options);
    };
    const bool is_wide = x.dim(0) <= x.dim(1);
    const Tensor norm = sqrt(sum(x * x, {0, 1}));
    x = x / maximum(norm, constant(x.graph(), a.number("epsilon"), x.dtype()));
    for (std::int64_t i = 0; i < a.integer("iterations"); ++i) {
        const Tensor rows = narrowed(x);
        const Tensor gram = product(rows, rows, !is_wide, is_wide), factor = narrowed(gram);
        const Tensor polynomial = narrowed(gram * cubic + product(factor, factor, false, false) * quintic);
        const Tensor turned =
            is_wide ? product(polynomial, rows, false, false) : product(rows, polynomial, false, false);
        x = x * linear + turned;
    }
    return x;
}

/// parameter, gradient, buffer, learning rate, gradient scale, apply; and a copy, if any -> parameter,
/// buffer, copy. As torch.optim.Muon: the buffer is the mean of gradients that momentum makes. The buffer, or
/// by Nesterov its value one gradient later, is made orthogonal and taken off the decayed parameter. Where
/// `apply` is false everything stays as it was, to the bit.
std::vector<Tensor> muon_definition(const DefinitionCall& call) {
    const auto& in = call.inputs;
    const Attributes& a = call.attributes;
    const double momentum = a.number("momentum");
    const Tensor p = as_f32(in[0]), rate = as_f32(in[3]), apply = in[5];
    const Tensor gradient = as_f32(in[1]) * as_f32(in[4]);
    const Tensor buffer = as_f32(in[2]) * momentum + gradient * (1.0 - momentum);
    const Tensor direction = a.flag("nesterov") ? buffer * momentum + gradient * (1.0 - momentum) : buffer;
    const Tensor decayed = p * (-(rate * a.number("weight_decay")) + 1.0);
    const Tensor next_p = decayed - orthogonalised(direction, a) * (rate * a.number("rate_factor"));
    std::vector<Tensor> outputs = {kept_unless(apply, next_p, in[0]), kept_unless(apply, buffer, in[2])};
    if (in.size() > muon_operands)
        outputs.push_back(kept_unless(apply, cast(next_p, in[0].dtype()), in[muon_operands]));
    return outputs;
}

/// FLOPs of each iteration: two products with the matrix, one of its small side alone.
std::int64_t muon_flops(std::span<const Type> inputs, std::span<const Type>, const Attributes& a) {
    const Shape& p = inputs[0].shape;
    const std::int64_t small = std::min(p[0], p[1]), elements = p.elements();
    return a.integer("iterations") * (4 * small * elements + 2 * small * small * small) + 10 * elements;
}

/// Updates of many parameters as one node: the operands and the results of each, one after the other.
struct JoinedUpdates {
    const Op& update;
    std::size_t parts, operands;

    JoinedUpdates(const Attributes& attributes, std::size_t inputs)
        : update(find_op(attributes.word("update"))),
          parts(static_cast<std::size_t>(attributes.integer("parts"))),
          operands(parts > 0 ? inputs / parts : 0) {
        expect(parts > 0 && operands * parts == inputs, "{} operands are not those of {} updates", inputs,
               parts);
    }

    template <class T>
    std::span<const T> of_part(std::span<const T> all, std::size_t part) const {
        return all.subspan(part * operands, operands);
    }
};

std::vector<Type> joined_updates_types(const OpCall& call) {
    const JoinedUpdates joined(call.attributes, call.inputs.size());
    std::vector<Type> types;
    for (std::size_t part = 0; part < joined.parts; ++part)
        for (const Type& type :
             joined.update.types({joined.update, joined.of_part(call.inputs, part), call.attributes}))
            types.push_back(type);
    return types;
}

std::vector<Tensor> joined_updates_definition(const DefinitionCall& call) {
    const JoinedUpdates joined(call.attributes, call.inputs.size());
    const Attributes own = call.attributes.without("update").without("parts");
    std::vector<Tensor> outputs;
    for (std::size_t part = 0; part < joined.parts; ++part)
        for (const Tensor& output : mantissa::call(call.graph, std::string(joined.update.name),
                                                   joined.of_part(call.inputs, part), own))
            outputs.push_back(output);
    return outputs;
}

std::int64_t joined_updates_flops(std::span<const Type> inputs, std::span<const Type> outputs,
                                  const Attributes& attributes) {
    const JoinedUpdates joined(attributes, inputs.size());
    const std::size_t results = outputs.size() / joined.parts;
    std::int64_t flops = 0;
    for (std::size_t part = 0; part < joined.parts; ++part)
        flops += joined.update.flops(joined.of_part(inputs, part), outputs.subspan(part * results, results),
                                     attributes);
    return flops;
}

int joined_updates_in_place(const Attributes& attributes, std::size_t inputs, std::size_t output) {
    const JoinedUpdates joined(attributes, inputs);
    // Only operands that each part has; an update with all its operands may write over more.
    std::vector<std::size_t> over;
    for (const int operand : joined.update.in_place)
        if (static_cast<std::size_t>(operand) < joined.operands)
            over.push_back(static_cast<std::size_t>(operand));
    return static_cast<int>(output / over.size() * joined.operands + over[output % over.size()]);
}

constexpr std::string_view not_differentiable = "the update is not differentiated";

}  // namespace

std::span<const Op> optimizer_ops() {
    static const std::vector<Op> rows = {
        {.name = "global_norm",
         .max_inputs = 1 << 20,
         .types = global_norm_types,
         .no_gradient = not_differentiable,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::row_reduction,
         .flops =
             [](auto inputs, auto, const Attributes&) {
                 std::int64_t elements = 0;
                 for (const Type& type : inputs) elements += type.shape.elements();
                 return 2 * elements;
             },
         .definition = global_norm_definition},
        {.name = "adamw",
         .min_inputs = 8,
         .max_inputs = 9,
         .types = adamw_types,
         .no_gradient = not_differentiable,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::elementwise,
         .flops = flops_per_input<15>,
         .definition = adamw_definition,
         .in_place = {0, 2, 3, 8},
         .copy = [](const Attributes&) -> std::size_t { return 8; }},
        {.name = "sgd",
         .min_inputs = 5,
         .max_inputs = 8,
         .types = sgd_types,
         .no_gradient = not_differentiable,
         .autocast = AutocastClass::fp32,
         .fuser = FuserClass::elementwise,
         .flops = sgd_flops,
         .definition = sgd_definition,
         // The second output is the buffer, or, without momentum, the copy: operand 5 in both cases.
         .in_place = {0, 5, 7},
         .copy = sgd_copy},
        {.name = "muon",
         .min_inputs = static_cast<int>(muon_operands),
         .max_inputs = static_cast<int>(muon_operands) + 1,
         .types = muon_types,
         .no_gradient = not_differentiable,
         .autocast = AutocastClass::fp32,
         .flops = muon_flops,
         .definition = muon_definition,
         .in_place = {0, 2, 6},
         .copy = [](const Attributes&) -> std::size_t { return muon_operands; }},
        {.name = "joined_updates",
         .max_inputs = 1 << 20,
         .types = joined_updates_types,
         .no_gradient = not_differentiable,
         .autocast = AutocastClass::fp32,
         .flops = joined_updates_flops,
         .definition = joined_updates_definition,
         .in_place_rule = joined_updates_in_place},
    };
    return rows;
}

}  // namespace mantissa
