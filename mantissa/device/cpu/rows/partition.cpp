#include "mantissa/device/cpu/rows/partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/rows/rows.h"

namespace mantissa::inline v0::on_cpu {

const RowKernels& row_kernels(Isa isa) {
    return of_level(isa, row_kernels_generic, row_kernels_avx2, row_kernels_avx512, row_kernels_avx512bf16)();
}

std::int64_t rows_per_block(std::int64_t bytes_per_row) {
    return std::clamp<std::int64_t>(block_bytes / std::max<std::int64_t>(bytes_per_row, 1), 1, 4096);
}

void for_each_range(ThreadPool& pool, std::int64_t total, std::int64_t per_block,
                    FunctionRef<void(Range, std::int64_t)> body) {
    pool.for_each_block(ceil_div(total, per_block), [&](std::int64_t block, int) {
        body({block * per_block, std::min(total, (block + 1) * per_block)}, block);
    });
}

namespace {

void add_columns(float* partials, std::int64_t blocks, std::int64_t width, Range columns, float* sum) {
    for (std::int64_t step = 1; step < blocks; step *= 2)
        for (std::int64_t block = 0; block + step < blocks; block += 2 * step) {
            float* into = partials + block * width;
            const float* from = partials + (block + step) * width;
            for (std::int64_t c = columns.first; c < columns.last; ++c) into[c] += from[c];
        }
    std::copy(partials + columns.first, partials + columns.last, sum + columns.first);
}

}  // namespace

void add_partial_sums(ThreadPool& pool, float* partials, std::int64_t blocks, std::int64_t width,
                      float* sum) {
    const std::int64_t columns_per_block = std::max<std::int64_t>(64, block_elements / blocks);
    for_each_range(pool, width, columns_per_block,
                   [&](Range columns, std::int64_t) { add_columns(partials, blocks, width, columns, sum); });
}

void ProblemCheck::fail(const std::string& what) const {
    throw InternalError(fmt::format("{}: {}", kernel_, what));
}

ProblemCheck& ProblemCheck::size(const char* name, std::int64_t value) {
    if (value < 1) fail(fmt::format("{} is {}, expected 1 or more", name, value));
    return *this;
}

void ProblemCheck::add(std::array<Extent, 8>& to, int& count, Extent extent) {
    if (!extent.begin) fail(fmt::format("{} is a null pointer", extent.name));
    to.at(static_cast<std::size_t>(count++)) = extent;
}

ProblemCheck& ProblemCheck::input(const char* name, const void* data, std::int64_t bytes) {
    add(inputs_, input_count_, {name, static_cast<const char*>(data), bytes});
    return *this;
}

ProblemCheck& ProblemCheck::output(const char* name, void* data, std::int64_t bytes) {
    add(outputs_, output_count_, {name, static_cast<const char*>(data), bytes});
    return *this;
}

ProblemCheck& ProblemCheck::input(const char* name, ConstView view, std::int64_t elements) {
    if (view.type != DType::f32 && view.type != DType::bf16 && view.type != DType::f16)
        fail(fmt::format("{} is {}, expected f32, bf16 or f16", name, name_of(view.type)));
    return input(name, view.data, elements * static_cast<std::int64_t>(size_of(view.type)));
}

ProblemCheck& ProblemCheck::output(const char* name, View view, std::int64_t elements) {
    if (view.type != DType::f32 && view.type != DType::bf16 && view.type != DType::f16)
        fail(fmt::format("{} is {}, expected f32, bf16 or f16", name, name_of(view.type)));
    return output(name, view.data, elements * static_cast<std::int64_t>(size_of(view.type)));
}

ProblemCheck& ProblemCheck::same_type(const char* name, DType type, DType wanted) {
    if (type != wanted) fail(fmt::format("{} is {}, expected {}", name, name_of(type), name_of(wanted)));
    return *this;
}

ProblemCheck& ProblemCheck::that(bool holds, const char* promise) {
    if (!holds) fail(promise);
    return *this;
}

Stores ProblemCheck::finish(Stores wanted) const {
    bool in_place = false;
    std::int64_t largest = 0;
    for (int i = 0; i < output_count_; ++i) {
        const Extent& out = outputs_[i];
        largest = std::max(largest, out.bytes);
        const auto overlaps = [&](const Extent& other) {
            return out.begin < other.begin + other.bytes && other.begin < out.begin + out.bytes;
        };
        for (int j = 0; j < i; ++j)
            if (const Extent& other = outputs_[j]; overlaps(other))
                fail(fmt::format("outputs {} and {} overlap", other.name, out.name));
        for (int j = 0; j < input_count_; ++j) {
            const Extent& in = inputs_[j];
            if (!overlaps(in)) continue;
            if (in.begin != out.begin || in.bytes != out.bytes)
                fail(fmt::format("output {} overlaps input {} without being the same memory", out.name,
                                 in.name));
            in_place = true;
        }
    }
    if (in_place) return Stores::plain;
    if (wanted != Stores::automatic) return wanted;
    return largest >= streaming_bytes ? Stores::streaming : Stores::plain;
}

}  // namespace mantissa::on_cpu
