#include "tests/emulated_gpu/run_libraries.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/numerics/short_formats.h"
#include "tests/emulated_gpu/machine.h"

namespace mantissa::inline v0::cuda {

namespace {

/// The terms of one part.
struct Terms {
    std::int64_t first = 0, count = 0;
};

Terms terms_of_part(const MatmulJob& job, std::int64_t part) {
    const std::int64_t all = job.terms(), first = all * part / job.parts;
    return {first, all * (part + 1) / job.parts - first};
}

/// Stored by columns, a matrix is its transpose stored by rows: so is the whole product. The sums lie without
/// gaps.
on_cpu::ContractionProblem problem_of(const MatmulJob& job, std::int64_t terms) {
    const auto layout = [](const MatrixLayoutOf& of, BlasOperation operation) {
        return on_cpu::MatrixLayout{.dtype = dtype_of(of.type),
                                    .transpose = operation == BlasOperation::transposed
                                                     ? on_cpu::Transpose::yes
                                                     : on_cpu::Transpose::no,
                                    .leading = of.leading,
                                    .batch_stride = {0, of.batch > 1 ? of.batch_stride : 0}};
    };
    on_cpu::ContractionProblem problem{
        .batch = {1, job.d.batch}, .m = job.d.columns, .n = job.d.rows, .k = terms};
    problem.a = layout(job.b, job.description.b);
    problem.b = layout(job.a, job.description.a);
    problem.out = {.leading = job.d.rows,
                   .batch_stride = {0, job.d.batch > 1 ? job.d.rows * job.d.columns : 0}};
    if (job.description.compute == BlasCompute::f32_as_tf32) problem.multiply = on_cpu::Multiply::tf32;
    return problem;
}

/// Adds up a part of each sum.
void add_part(Machine& machine, const MatmulJob& job, std::int64_t part, const std::byte* a,
              const std::byte* b, float* sums) {
    const Terms terms = terms_of_part(job, part);
    on_cpu::ContractionProblem problem = problem_of(job, terms.count);
    if (part > 0) problem.store = on_cpu::Store::accumulate;
    // A term is a column of A and a row of B, as they are multiplied.
    const std::int64_t step_of_a = job.description.a == BlasOperation::transposed ? 1 : job.a.leading;
    const std::int64_t step_of_b = job.description.b == BlasOperation::transposed ? job.b.leading : 1;
    const auto size = static_cast<std::int64_t>(size_of(dtype_of(job.a.type)));
    const on_cpu::PreparedContraction contraction =
        on_cpu::prepare_contraction(problem, on_cpu::chosen_isa());
    std::vector<std::byte> scratch(contraction.workspace_bytes(machine.pool().threads()) + 64);
    void* aligned = scratch.data();
    std::size_t room = scratch.size();
    std::align(64, scratch.size() - 64, aligned, room);
    contract(contraction,
             {.a = b + terms.first * step_of_b * size, .b = a + terms.first * step_of_a * size, .out = sums},
             {static_cast<std::byte*>(aligned), scratch.size() - 64}, machine.pool());
}

/// Visits each column of each matrix of the batch: its address and bytes.
template <class Visit>
void for_each_column(const MatrixLayoutOf& of, DevicePtr first, const Visit& visit) {
    const auto size = static_cast<std::int64_t>(size_of(dtype_of(of.type)));
    for (std::int64_t entry = 0; entry < of.batch; ++entry)
        for (std::int64_t column = 0; column < of.columns; ++column)
            visit(first + static_cast<DevicePtr>((entry * of.batch_stride + column * of.leading) * size),
                  static_cast<std::size_t>(of.rows * size));
}

const std::byte* read(Machine& machine, const MatrixLayoutOf& of, DevicePtr first, const char* what) {
    for_each_column(of, first,
                    [&](DevicePtr at, std::size_t bytes) { machine.read_by_library(at, bytes, what); });
    return machine.read_by_library(first, size_of(dtype_of(of.type)), what);
}

void load(float* to, const std::byte* from, DType type, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(load_as_f64(from, type, i));
}

void store(std::byte* to, DType type, const float* from, std::int64_t count) {
    const auto n = static_cast<std::size_t>(count);
    if (type == DType::f32)
        std::memcpy(to, from, n * sizeof(float));
    else if (type == DType::bf16)
        std::transform(from, from + n, reinterpret_cast<BF16*>(to), to_bf16);
    else
        std::transform(from, from + n, reinterpret_cast<FP16*>(to), to_fp16);
}

double gelu(double x) {
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 * std::numbers::inv_pi) * (x + 0.044715 * x * x * x)));
}

double gelu_gradient(double x) {
    const double scale = std::sqrt(2 * std::numbers::inv_pi);
    const double t = std::tanh(scale * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x * x);
}

/// The epilogue of the sums, column by column. Nothing is rounded before it is stored.
class Finish {
  public:
    Finish(Machine& machine, const MatmulJob& job)
        : machine_(machine),
          job_(job),
          of_(job.description),
          type_(dtype_of(job.d.type)),
          rows_(job.d.rows),
          bias_(static_cast<std::size_t>(rows_)),
          beside_(bias_),
          scale_(scale_of(of_.scale_of_a) * scale_of(of_.scale_of_b)) {
        if (!of_.adds_bias()) return;
        load(bias_.data(), machine.read_by_library(of_.bias, bytes(), "cublasLtMatmul, reading the bias"),
             type_, rows_);
    }

    void run(std::vector<float>& sums) {
        float* column = sums.data();
        DevicePtr kept = of_.kept;
        for_each_column(job_.d, job_.at_d, [&](DevicePtr at, std::size_t) {
            finish(column, at, kept);
            column += rows_;
            kept += static_cast<DevicePtr>(of_.kept_leading) * size_of(type_);
        });
        if (of_.sums_gradient())
            store(
                machine_.written_by_library(of_.bias, bytes(), "cublasLtMatmul, writing the bias's gradient"),
                type_, bias_.data(), rows_);
    }

  private:
    std::size_t bytes() const { return static_cast<std::size_t>(rows_) * size_of(type_); }

    float scale_of(DevicePtr at) const {
        if (at == 0) return 1;
        float scale = 0;
        std::memcpy(&scale, machine_.read_by_library(at, sizeof scale, "cublasLtMatmul, reading a scale"),
                    sizeof scale);
        return scale;
    }

    void finish(float* column, DevicePtr at, DevicePtr kept) {
        std::byte* const d = machine_.written_by_library(at, bytes(), "cublasLtMatmul, writing D");
        if (job_.adds) load(beside_.data(), d, type_, rows_);
        for (std::size_t i = 0; i < bias_.size(); ++i) {
            column[i] *= scale_;
            if (job_.in_place) column[i] *= 1 + 1.0f / 16;
            if (job_.adds) column[i] += beside_[i];
            if (of_.adds_bias()) column[i] += bias_[i];
        }
        if (of_.is_gelu()) {
            if (of_.has_kept())
                store(machine_.written_by_library(kept, bytes(), "cublasLtMatmul, keeping GELU's input"),
                      type_, column, rows_);
            std::transform(column, column + rows_, column,
                           [](float x) { return static_cast<float>(gelu(x)); });
        }
        if (of_.is_gradient()) {
            load(beside_.data(),
                 machine_.read_by_library(kept, bytes(), "cublasLtMatmul, reading GELU's input"), type_,
                 rows_);
            for (std::size_t i = 0; i < bias_.size(); ++i) {
                column[i] = static_cast<float>(column[i] * gelu_gradient(beside_[i]));
                bias_[i] += column[i];
            }
        }
        store(d, type_, column, rows_);
    }

    Machine& machine_;
    const MatmulJob& job_;
    const MatmulDescriptionOf& of_;
    DType type_;
    std::int64_t rows_;
    std::vector<float> bias_, beside_;
    float scale_;
};

/// Sums of whole numbers are the same in any order, and wrap around. A is transposed, B is not.
void multiply_bytes(Machine& machine, const MatmulJob& job, const std::byte* a, const std::byte* b) {
    const auto *of_a = reinterpret_cast<const std::int8_t*>(a),
               *of_b = reinterpret_cast<const std::int8_t*>(b);
    std::vector<std::byte*> columns;
    for_each_column(job.d, job.at_d, [&](DevicePtr at, std::size_t bytes) {
        columns.push_back(machine.written_by_library(at, bytes, "cublasLtMatmul, writing D"));
    });
    machine.pool().for_each_block(std::ssize(columns), [&](std::int64_t column, int) {
        for (std::int64_t row = 0; row < job.d.rows; ++row) {
            std::uint32_t sum = 0;
            for (std::int64_t k = 0; k < job.terms(); ++k)
                sum += static_cast<std::uint32_t>(of_a[row * job.a.leading + k] *
                                                  of_b[column * job.b.leading + k]);
            std::memcpy(columns[static_cast<std::size_t>(column)] + row * 4, &sum, sizeof sum);
        }
    });
}

/// FP8 as BF16, which has each of its numbers.
std::vector<BF16> widened(MatrixLayoutOf& of, const std::byte* from) {
    if (!is_fp8(of.type)) return {};
    const ShortFormat format = of.type == BlasType::e4m3 ? ShortFormat::e4m3 : ShortFormat::e5m2;
    of.type = BlasType::bf16;
    std::vector<BF16> numbers(static_cast<std::size_t>((of.columns - 1) * of.leading + of.rows));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = to_bf16(value_of(format, static_cast<std::uint8_t>(from[i])));
    return numbers;
}

}  // namespace

void run_matmul(Machine& machine, const MatmulJob& job) {
    const std::byte *a = read(machine, job.a, job.at_a, "cublasLtMatmul, reading A"),
                    *b = read(machine, job.b, job.at_b, "cublasLtMatmul, reading B");
    if (job.adds) read(machine, job.d, job.at_d, "cublasLtMatmul, reading C");
    // The contents of the workspace are lost.
    if (job.workspace_bytes > 0)
        std::memset(machine.written_by_library(job.workspace, job.workspace_bytes,
                                               "cublasLtMatmul, in its workspace"),
                    0xff, job.workspace_bytes);
    if (job.description.is_of_bytes()) return multiply_bytes(machine, job, a, b);
    std::vector<float> sums(static_cast<std::size_t>(job.d.rows * job.d.columns * job.d.batch));
    MatmulJob asked = job;
    const std::vector<BF16> wide_a = widened(asked.a, a), wide_b = widened(asked.b, b);
    if (is_fp8(job.a.type)) {
        a = reinterpret_cast<const std::byte*>(wide_a.data());
        b = reinterpret_cast<const std::byte*>(wide_b.data());
    }
    for (std::int64_t part = 0; part < job.parts; ++part) add_part(machine, asked, part, a, b, sums.data());
    Finish(machine, job).run(sums);
}

}  // namespace mantissa::cuda
