#include "tests/emulated_gpu/run_libraries.h"

#include <cstring>
#include <string>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/graph/op.h"
#include "tests/emulated_gpu/machine.h"

namespace mantissa::inline v0::cuda {

namespace {

using Bytes = std::vector<std::byte>;

/// [K, R S, C] to [R S, C, K], or back.
Bytes transposed(const std::byte* from, const Shape& filter, std::size_t size, bool back) {
    const auto taps = static_cast<std::size_t>(filter[0] * filter[1]),
               channels = static_cast<std::size_t>(filter[2]), filters = static_cast<std::size_t>(filter[3]);
    Bytes to(taps * channels * filters * size);
    for (std::size_t tap = 0; tap < taps; ++tap)
        for (std::size_t c = 0; c < channels; ++c)
            for (std::size_t k = 0; k < filters; ++k) {
                const std::size_t library = (k * taps + tap) * channels + c,
                                  own = (tap * channels + c) * filters + k;
                std::memcpy(to.data() + (back ? library : own) * size, from + (back ? own : library) * size,
                            size);
            }
    return to;
}

const char* op_of(const ConvolutionJob& job) {
    using enum codegen::ConvolutionResult;
    return job.makes == output               ? "conv2d"
           : job.makes == gradient_of_images ? "conv2d_input_gradient"
                                             : "conv2d_filter_gradient";
}

Attributes attributes_of(const ConvolutionJob& job) {
    using List = std::vector<std::int64_t>;
    const ConvolutionAxis &rows = job.of.vertical, &columns = job.of.horizontal;
    Attributes all{{"dilation", List{rows.dilation, columns.dilation}},
                   {"groups", job.of.groups},
                   {"padding", List{rows.before, rows.behind, columns.before, columns.behind}},
                   {"stride", List{rows.stride, columns.stride}}};
    if (job.makes == codegen::ConvolutionResult::gradient_of_images)
        all = all.with("extents", List{rows.image, columns.image});
    if (job.makes == codegen::ConvolutionResult::gradient_of_filter)
        all = all.with("window", List{rows.filter, columns.filter});
    if (job.engine == EngineKind::tensor_core && job.dtype == DType::f32)
        all = all.with("multiply", std::string("tf32"));
    return all;
}

void run_on(mantissa::Device& cpu, const ConvolutionJob& job, const std::vector<Type>& inputs,
            const Type& output, const std::vector<const std::byte*>& from, std::byte* to) {
    const Op& op = find_op(op_of(job));
    const Attributes attributes = attributes_of(job);
    const std::vector<Type> outputs{output};
    std::string reasons;
    for (const Kernel& kernel : cpu.kernels(op.name)) {
        const Expected<PreparedKernel> prepared = kernel.prepare({op, inputs, outputs, attributes});
        if (!prepared) {
            reasons += prepared.reason() + "; ";
            continue;
        }
        const auto scratch = cpu.allocate(static_cast<std::size_t>(prepared->workspace), "a convolution");
        const std::vector<std::byte*> results{to};
        prepared->launch({from, results, scratch->data()});
        return;
    }
    throw InternalError("the CPU has no kernel for an emulated convolution: " + reasons);
}

bool is_symmetric(const Convolution& of) {
    return of.vertical.before == of.vertical.behind && of.horizontal.before == of.horizontal.behind;
}

/// Shows the engine in the result, as cuDNN's engines differ.
void show_engine(const ConvolutionJob& job, std::byte* result, std::int64_t elements, std::int64_t run) {
    if (job.engine == EngineKind::nondeterministic && run % 2 == 1) result[0] ^= std::byte{1};
    const bool is_wrong =
        job.engine == EngineKind::symmetric && job.dtype == DType::f32 && !is_symmetric(job.of);
    if (job.engine != EngineKind::winograd && !is_wrong) return;
    for (std::int64_t i = 0; i < elements; ++i) {
        float value = 0;
        std::memcpy(&value, result + i * 4, 4);
        value *= is_wrong ? -1 : 1 + 0x1p-12f;
        std::memcpy(result + i * 4, &value, 4);
    }
}

}  // namespace

void convolve(Machine& machine, mantissa::Device& cpu, const ConvolutionJob& job, std::int64_t run) {
    using enum codegen::ConvolutionResult;
    const std::size_t size = size_of(job.dtype);
    const Type x{job.dtype, job.of.x_shape()}, w{job.dtype, job.of.filter_shape()},
        y{job.dtype, job.of.y_shape()};
    const auto read = [&](DevicePtr at, const Type& type, const char* what) {
        return machine.read_by_library(at, static_cast<std::size_t>(type.bytes()), what);
    };
    const auto write = [&](DevicePtr at, const Type& type, const char* what) {
        return machine.written_by_library(at, static_cast<std::size_t>(type.bytes()), what);
    };
    std::vector<Type> inputs;
    std::vector<const std::byte*> from;
    const auto take = [&](const Type& type, const std::byte* at) {
        inputs.push_back(type);
        from.push_back(at);
    };
    Bytes filter;
    if (job.makes != output) {
        if (job.makes == gradient_of_filter) take(x, read(job.x, x, "cudnnBackendExecute, reading x"));
        take(y, read(job.y, y, "cudnnBackendExecute, reading dy"));
    } else {
        take(x, read(job.x, x, "cudnnBackendExecute, reading x"));
    }
    if (job.makes != gradient_of_filter) {
        filter = transposed(read(job.w, w, "cudnnBackendExecute, reading w"), w.shape, size, false);
        take(w, filter.data());
    }
    if (job.bias != 0) {
        const Type bias{job.dtype, {job.of.filters}};
        take(bias, read(job.bias, bias, "cudnnBackendExecute, reading b"));
    }
    // The contents of the workspace are lost.
    if (job.workspace_bytes > 0)
        std::memset(machine.written_by_library(job.workspace, job.workspace_bytes,
                                               "cudnnBackendExecute, in its workspace"),
                    0xff, job.workspace_bytes);
    if (job.makes == gradient_of_filter) {
        Bytes own(static_cast<std::size_t>(w.bytes()));
        run_on(cpu, job, inputs, w, from, own.data());
        filter = transposed(own.data(), w.shape, size, true);
        std::byte* const to = write(job.w, w, "cudnnBackendExecute, writing dw");
        std::memcpy(to, filter.data(), filter.size());
        return show_engine(job, to, w.shape.elements(), run);
    }
    const bool forward = job.makes == output;
    const Type& made = forward ? y : x;
    std::byte* const to = write(forward ? job.y : job.x, made, "cudnnBackendExecute, writing its result");
    run_on(cpu, job, inputs, made, from, to);
    show_engine(job, to, made.shape.elements(), run);
}

}  // namespace mantissa::cuda
