// The three products of a convolution. Kernels of our own are for filters of one channel, cuBLASLt for
// windows that share no pixel. A kernel on the matrix units makes gradients of larger filters in 16 bits.
// Else cuDNN does the product, or a slow kernel of our own. cuDNN has filters as [K, R, S, C], so the graph's
// filters, [R, S, C, K], are transposed on their way.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "mantissa/device/cuda/kernels/dnn_plan.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/cuda/kernels/products.h"
#include "mantissa/graph/convolution.h"

namespace mantissa::inline v0::on_cuda {

namespace {

struct NamedConvolution {
    const char* op;
    codegen::ConvolutionResult makes;
};

constexpr NamedConvolution convolutions[] = {
    {"conv2d", codegen::ConvolutionResult::output},
    {"conv2d_input_gradient", codegen::ConvolutionResult::gradient_of_images},
    {"conv2d_filter_gradient", codegen::ConvolutionResult::gradient_of_filter},
};

constexpr std::int64_t scratch_alignment = 256;

constexpr std::string_view begins_askew =
    "it takes operands at multiples of 16 bytes, and one begins between them";

/// A kernel that writes elements elsewhere, perhaps as others: cuDNN's filter from the graph's, or back, or
/// an operand in FP32.
struct Rewrite : SizedKernel {
    void queue(const Context& context, cuda::DevicePtr from, cuda::DevicePtr to) const {
        launch(context, *kernel, blocks, {from, to});
    }
};

Rewrite rewrite(Context& context, std::vector<std::int64_t> extents, codegen::Strided from,
                codegen::Strided to) {
    codegen::ElementKernel kernel{.op = from.dtype == to.dtype ? "copy" : "cast",
                                  .extents = std::move(extents),
                                  .operands = {std::move(from)},
                                  .output = std::move(to)};
    const auto moves_at_once = [&](int count) {
        const auto is_whole = [&](const codegen::Strided& of) {
            return of.strides.back() == 1 &&
                   std::all_of(of.strides.begin(), of.strides.end() - 1,
                               [&](std::int64_t stride) { return stride % count == 0; });
        };
        return kernel.extents.back() % count == 0 && is_whole(kernel.operands[0]) && is_whole(kernel.output);
    };
    for (const int count : {8, 4, 2})
        if (kernel.at_once == 1 && moves_at_once(count)) kernel.at_once = count;
    return {add_element_kernel(context, std::move(kernel))};
}

Rewrite widened(Context& context, const Type& type) {
    return rewrite(context, {type.shape.elements()}, {type.dtype, {1}}, {DType::f32, {1}});
}

/// Strides of each filter [K] and channel [C], all taps [R S].
std::vector<std::int64_t> strides_in_graph(const Convolution& of) {
    return {1, of.filters, of.group_channels() * of.filters};
}
std::vector<std::int64_t> strides_in_library(const Convolution& of) {
    const std::int64_t taps = of.vertical.filter * of.horizontal.filter;
    return {taps * of.group_channels(), 1, of.group_channels()};
}
std::vector<std::int64_t> filter_extents(const Convolution& of) {
    return {of.filters, of.group_channels(), of.vertical.filter * of.horizontal.filter};
}

/// The call of cuDNN and the conversions around it. Where the result is FP32 and the operands are shorter,
/// which cuDNN does not offer, they are widened. TF32 has every number of BF16 and FP16, so the products are
/// as exact.
class BoundDnn {
  public:
    BoundDnn(Context& context, const DnnConvolution& of, std::span<const Type> operands,
             std::shared_ptr<DnnPlan> plan)
        : context_(context), makes_(of.makes), bias_(of.bias), plan_(std::move(plan)) {
        const DType stored = operands[0].dtype;
        const bool widens = stored != of.dtype,
                   has_filter = makes_ != codegen::ConvolutionResult::gradient_of_filter;
        if (widens) first_ = widened(context, operands[0]);
        if (has_filter) {
            second_ = rewrite(context, filter_extents(of.of), {stored, strides_in_graph(of.of)},
                              {of.dtype, strides_in_library(of.of)});
        } else {
            if (widens) second_ = widened(context, operands[1]);
            result_ = rewrite(context, filter_extents(of.of), {of.dtype, strides_in_library(of.of)},
                              {of.dtype, strides_in_graph(of.of)});
        }
        if (bias_ && widens) third_ = widened(context, operands[2]);
        const auto reserve = [&](const Rewrite& rewrite, const Shape& shape) {
            const std::int64_t at = bytes_;
            if (rewrite.kernel)
                bytes_ = align_up(bytes_ + shape.elements() * static_cast<std::int64_t>(size_of(of.dtype)),
                                  scratch_alignment);
            return static_cast<cuda::DevicePtr>(at);
        };
        first_at_ = reserve(first_, operands[0].shape);
        second_at_ = reserve(second_, operands[1].shape);
        if (bias_) third_at_ = reserve(third_, operands[2].shape);
        result_at_ = reserve(result_, of.of.filter_shape());
    }

    std::int64_t workspace() const { return bytes_ + plan_->workspace(); }
    std::string text() const { return plan_->text(); }
    std::int64_t launches() const {
        std::int64_t all = 1;
        for (const Rewrite* one : {&first_, &second_, &third_, &result_}) all += one->kernel ? 1 : 0;
        return all;
    }

    void queue(const Operands& operands) const {
        const cuda::DevicePtr scratch = address_of(operands.workspace);
        const auto given = [&](const Rewrite& rewrite, std::size_t operand, cuda::DevicePtr at) {
            const cuda::DevicePtr stored = address_of(operands.inputs[operand]);
            if (!rewrite.kernel) return stored;
            rewrite.queue(context_, stored, scratch + at);
            return scratch + at;
        };
        const cuda::DevicePtr first = given(first_, 0, first_at_), second = given(second_, 1, second_at_),
                              third = bias_ ? given(third_, 2, third_at_) : 0,
                              made = address_of(operands.outputs[0]);
        DnnPlan::Addresses addresses{.bias = third,
                                     .workspace = scratch + static_cast<cuda::DevicePtr>(bytes_)};
        const bool forward = makes_ == codegen::ConvolutionResult::output,
                   images = makes_ == codegen::ConvolutionResult::gradient_of_images;
        addresses.x = images ? made : first;
        addresses.w = result_.kernel ? scratch + result_at_ : second;
        addresses.y = forward ? made : images ? first : second;
        plan_->queue(addresses);
        if (result_.kernel) result_.queue(context_, addresses.w, made);
    }

  private:
    Context& context_;
    codegen::ConvolutionResult makes_;
    bool bias_;
    std::shared_ptr<DnnPlan> plan_;
    Rewrite first_, second_, third_, result_;  // without a kernel: nothing is done
    cuda::DevicePtr first_at_ = 0, second_at_ = 0, third_at_ = 0, result_at_ = 0;
    std::int64_t bytes_ = 0;
};

Expected<PreparedKernel> prepare_by_library(Context& context, const NamedConvolution& named,
                                            const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    const DType stored = problem.inputs[0].dtype, written = problem.outputs[0].dtype;
    const DnnConvolution of{.makes = named.makes,
                            .of = convolution_of(problem.inputs, problem.attributes),
                            .dtype = written,
                            .bias = problem.inputs.size() == 3,
                            .tf32 = unit.tf32 || written != stored};
    for (const Type& type : problem.inputs)
        if (type.shape.elements() == 0) return Unexpected{"cuDNN takes no empty tensors, got " + type.text()};
    if (problem.askew) return Unexpected{std::string(begins_askew)};
    Expected<std::shared_ptr<DnnPlan>> plan = plan_convolution(context, of);
    if (!plan) return Unexpected{plan.reason()};
    const auto bound = std::make_shared<const BoundDnn>(context, of, problem.inputs, std::move(*plan));
    return PreparedKernel{.launch = [bound](const Operands& operands) { bound->queue(operands); },
                          .workspace = bound->workspace(),
                          .launches = bound->launches(),
                          .algorithm = [bound] { return bound->text(); }};
}

/// Windows that share no pixel: the windows of all images are rows, and the filter is a matrix [R S C, K] as
/// it lies in the graph. So a gradient of filters is FP32, whatever its operands. Where windows are not the
/// pixels as they lie, they are copied together before, or a gradient of images apart behind.
Expected<PreparedKernel> prepare_by_product(Context& context, const NamedConvolution& named,
                                            const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    const Convolution of = convolution_of(problem.inputs, problem.attributes);
    const auto is_apart = [](const ConvolutionAxis& axis) {
        return axis.before == 0 && axis.behind == 0 && axis.filter <= axis.stride &&
               (axis.dilation == 1 || axis.filter == 1);
    };
    if (!is_apart(of.vertical) || !is_apart(of.horizontal) || of.groups != 1)
        return Unexpected{"its windows share pixels, or are of some channels"};
    for (const Type& type : problem.inputs)
        if (type.shape.elements() == 0)
            return Unexpected{"cuBLASLt takes no empty matrices, got " + type.text()};
    const bool gathers = of.vertical.stride > 1 || of.horizontal.stride > 1;
    if (gathers && problem.askew) return Unexpected{std::string(begins_askew)};
    const std::int64_t rows = of.images * of.vertical.output * of.horizontal.output;
    const DType stored = problem.inputs[0].dtype, written = problem.outputs[0].dtype;
    const Product::Matrix x{stored, rows, of.depth()}, w{stored, of.depth(), of.filters},
        y{stored, rows, of.filters};
    const auto transposed = [](Product::Matrix matrix) {
        matrix.transposed = true;
        return matrix;
    };
    const auto as_written = [&](Product::Matrix matrix) {
        matrix.dtype = written;
        return matrix;
    };
    Product product{
        .a = x, .b = w, .y = as_written(y), .bias = problem.inputs.size() == 3, .tf32 = unit.tf32};
    if (named.makes == codegen::ConvolutionResult::gradient_of_images) {
        const auto leaves_out = [](const ConvolutionAxis& axis) {
            return axis.output * axis.filter != axis.image;
        };
        if (leaves_out(of.vertical) || leaves_out(of.horizontal))
            return Unexpected{"its stride leaves out pixels, whose gradients are 0"};
        product.a = y, product.b = transposed(w), product.y = as_written(x);
    } else if (named.makes == codegen::ConvolutionResult::gradient_of_filter) {
        product.a = transposed(x), product.b = y, product.y = as_written(w);
    }
    if (product.bias && problem.inputs[2].dtype != written)
        return Unexpected{fmt::format("cuBLASLt adds a bias of the output's {}, got {}", name_of(written),
                                      problem.inputs[2].text())};
    Expected<PreparedKernel> prepared = prepare_product(context, product);
    if (!prepared || !gathers) return prepared;
    // A row of a window is as many numbers side by side, in the image and in the matrix.
    const bool is_gathered = named.makes != codegen::ConvolutionResult::gradient_of_images;
    const DType moved = is_gathered ? stored : written;
    const std::int64_t row = of.horizontal.image * of.channels,
                       in_window = of.horizontal.filter * of.channels;
    const std::vector<std::int64_t> extents{of.images, of.vertical.output, of.horizontal.output,
                                            of.vertical.filter, in_window};
    const codegen::Strided in_image{
        moved,
        {of.vertical.image * row, of.vertical.stride * row, of.horizontal.stride * of.channels, row, 1}},
        in_matrix{moved, Shape(extents).strides()};
    const Rewrite windows = is_gathered ? rewrite(context, extents, in_image, in_matrix)
                                        : rewrite(context, extents, in_matrix, in_image);
    const std::int64_t windows_at = align_up(prepared->workspace, scratch_alignment);
    prepared->launch = [&context, windows, windows_at, is_gathered,
                        multiply = prepared->launch](const Operands& operands) {
        std::byte* const matrix = operands.workspace + windows_at;
        std::vector<const std::byte*> inputs(operands.inputs.begin(), operands.inputs.end());
        std::vector<std::byte*> outputs(operands.outputs.begin(), operands.outputs.end());
        if (is_gathered) {
            windows.queue(context, address_of(inputs[0]), address_of(matrix));
            inputs[0] = matrix;
        } else {
            outputs[0] = matrix;
        }
        multiply({inputs, outputs, operands.workspace});
        if (!is_gathered) windows.queue(context, address_of(matrix), address_of(operands.outputs[0]));
    };
    prepared->workspace = windows_at + rows * of.depth() * static_cast<std::int64_t>(size_of(moved));
    prepared->launches += 1;
    return prepared;
}

/// A gradient of filters by a kernel that leaves FP32 sums of so many parts of the places; a reduction adds
/// them in order.
PreparedKernel added_in_parts(Context& context, const SizedKernel& made, std::int64_t parts,
                              const Problem& problem) {
    const Type& result = problem.outputs[0];
    const Launch run = launch_of(context, made);
    if (parts == 1 && result.dtype == DType::f32) return {.launch = run};
    const Type sums{DType::f32, {parts, result.shape.elements()}};
    const Stages stages = stages_of(context, sums.shape, {0}, {.to = result.dtype});
    const std::int64_t bytes = align_up(sums.bytes(), scratch_alignment);
    PreparedKernel prepared{.launch =
                                [&context, run, stages, bytes](const Operands& operands) {
                                    std::byte* const of_parts[] = {operands.workspace};
                                    run({operands.inputs, of_parts});
                                    stages.queue(context, address_of(operands.workspace),
                                                 address_of(operands.workspace + bytes),
                                                 address_of(operands.outputs[0]));
                                },
                            .workspace = bytes + stages.partial_bytes,
                            .launches = 1 + stages.launches()};
    prepared.cost = problem.op.cost(problem.inputs, problem.outputs, problem.attributes);
    prepared.cost->bytes += 2 * bytes;
    return prepared;
}

/// A gradient of filters in FP32 of shorter operands. Places of dy are shared out in parts, so that blocks
/// fill the GPU once; a reduction adds up the sums of the parts in order.
Expected<PreparedKernel> prepare_filter_gradient(Context& context, const NamedConvolution& named,
                                                 const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    for (const Type& type : problem.inputs)
        if (type.shape.elements() == 0) return Unexpected{"it takes no empty tensors, got " + type.text()};
    if (problem.askew)
        return Unexpected{"it moves 16 bytes at a time, and an operand may begin between them"};
    if (unit.operands == DType::f32) return Unexpected{"it multiplies bf16 and f16, got f32"};
    if (problem.outputs[0].dtype != DType::f32)
        return Unexpected{"it makes gradients in f32, asked for " + problem.outputs[0].text()};
    codegen::FilterGradientKernel gradient{.of = convolution_of(problem.inputs, problem.attributes),
                                           .dtype = unit.operands};
    if (std::string reason = codegen::refuse_filter_gradient(gradient); !reason.empty())
        return Unexpected{std::move(reason)};
    // A block takes most registers of a multiprocessor, which holds 2,048 threads on sm_80, sm_90 and sm_100.
    constexpr std::int64_t resident_threads = 2048;
    const std::int64_t wanted = context.resident_threads / resident_threads / gradient.tiles();
    gradient.parts = std::clamp<std::int64_t>(wanted, 1, gradient.stages());
    gradient.parts = ceil_div(gradient.stages(), gradient.stages_of_part());
    const SizedKernel made = add_sized(
        context, {.name = fmt::format("{}_{}", named.op, name_of(gradient.dtype)), .code = gradient});
    return added_in_parts(context, made, gradient.sums(), problem);
}

codegen::ConvolutionKernel own_kernel(const NamedConvolution& named, const ProductUnit& unit,
                                      const Problem& problem) {
    codegen::ConvolutionKernel kernel{.makes = named.makes,
                                      .of = convolution_of(problem.inputs, problem.attributes),
                                      .from = problem.inputs[0].dtype,
                                      .to = problem.outputs[0].dtype,
                                      .tf32 = unit.tf32};
    if (problem.inputs.size() == 3) kernel.bias = problem.inputs[2].dtype;
    return kernel;
}

/// A filter a channel: cuDNN's engines took many times as long for these.
Expected<PreparedKernel> prepare_by_channel(Context& context, const NamedConvolution& named,
                                            const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    const codegen::ConvolutionKernel convolution = own_kernel(named, unit, problem);
    if (std::string reason = codegen::refuse_depthwise(convolution); !reason.empty())
        return Unexpected{std::move(reason)};
    const codegen::DepthwiseKernel kernel = codegen::depthwise_kernel(convolution, problem.askew);
    const SizedKernel made = add_sized(
        context,
        {.name = fmt::format("depthwise_{}_{}", named.op, name_of(convolution.from)), .code = kernel});
    if (named.makes == codegen::ConvolutionResult::gradient_of_filter)
        return added_in_parts(context, made, kernel.parts(), problem);
    return PreparedKernel{.launch = launch_of(context, made)};
}

/// A thread an output: for sizes that no library takes, and machines without cuDNN.
Expected<PreparedKernel> prepare_plainly(Context& context, const NamedConvolution& named,
                                         const ProductUnit& unit, const Problem& problem) {
    if (std::string reason = unit.refusal(problem); !reason.empty()) return Unexpected{std::move(reason)};
    const codegen::ConvolutionKernel convolution = own_kernel(named, unit, problem);
    const SizedKernel kernel = add_sized(
        context, {.name = fmt::format("{}_{}", named.op, name_of(convolution.from)), .code = convolution});
    return PreparedKernel{.launch = launch_of(context, kernel)};
}

}  // namespace

void add_convolution_kernels(KernelTable& table, Context& context) {
    for (const NamedConvolution& named : convolutions) {
        const auto add = [&](const char* by, const std::string& unit_name, auto* prepare) {
            for (const ProductUnit& unit : product_units(context, by, unit_name))
                table[named.op].push_back(
                    {.name = unit.name,
                     .arithmetic = unit.arithmetic,
                     .prepare = [&context, &named, prepare, unit](const Problem& problem) {
                         return prepare(context, named, unit, problem);
                     }});
        };
        add("depthwise", context.unit, prepare_by_channel);
        add("cublasLt", context.matrix_unit, prepare_by_product);
        if (named.makes == codegen::ConvolutionResult::gradient_of_filter)
            add("tiles of windows", context.matrix_unit, prepare_filter_gradient);
        add("cudnn", context.matrix_unit, prepare_by_library);
        add("a thread an element", context.unit, prepare_plainly);
    }
}

}  // namespace mantissa::on_cuda
