// Matrices over a warp: mma.sync, ldmatrix and stmatrix, and the asynchronous copies that feed them. Which
// lane holds which element: PTX ISA 8.5, section 9.7.14.
#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "tests/emulated_gpu/run_memory.h"
#include "tests/emulated_gpu/run_warp.h"
#include "tests/emulated_gpu/small_formats.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

constexpr MatrixShape shapes[] = {
    {"m16n8k16", "f32.bf16.bf16.f32", 16, 4, 2, 4, 80, 70},
    {"m16n8k8", "f32.bf16.bf16.f32", 8, 2, 1, 4, 80, 70},
    {"m16n8k16", "f32.f16.f16.f32", 16, 4, 2, 4, 80, 70},
    {"m16n8k8", "f32.f16.f16.f32", 8, 2, 1, 4, 75, 65},
    {"m16n8k16", "f16.f16.f16.f16", 16, 4, 2, 2, 80, 70},
    {"m16n8k8", "f16.f16.f16.f16", 8, 2, 1, 2, 75, 65},
    {"m16n8k8", "f32.tf32.tf32.f32", 8, 4, 2, 4, 80, 70},
    {"m16n8k4", "f32.tf32.tf32.f32", 4, 2, 1, 4, 80, 70},
    {"m16n8k32", "s32.s8.s8.s32", 32, 4, 2, 4, 80, 70},
    {"m16n8k16", "s32.s8.s8.s32", 16, 2, 1, 4, 80, 70},
    {"m8n8k4", "f64.f64.f64.f64", 4, 1, 1, 2, 80, 70},
};

enum class Element { bf16, f16, tf32, s8, f64 };

Element element_of(const MatrixShape& shape) {
    const std::string types = shape.types;
    if (types.find(".bf16") != std::string::npos) return Element::bf16;
    if (types.find(".f16") != std::string::npos) return Element::f16;
    if (types.find(".tf32") != std::string::npos) return Element::tf32;
    return types.find(".s8") != std::string::npos ? Element::s8 : Element::f64;
}

double element(Element kind, std::uint32_t bits, int index) {
    switch (kind) {
        case Element::bf16:
            return bf16_to_float(static_cast<std::uint16_t>(bits >> (16 * index)));
        case Element::f16:
            return half_to_float(static_cast<std::uint16_t>(bits >> (16 * index)));
        case Element::tf32:
            return std::bit_cast<float>(bits & 0xffffe000);  // the last 13 bits are not looked at
        case Element::s8:
            return static_cast<std::int8_t>(bits >> (8 * index));
        case Element::f64:
            break;
    }
    return 0;
}

int elements_of_register(Element kind) { return kind == Element::s8 ? 4 : kind == Element::tf32 ? 1 : 2; }

struct Operands {
    double a[16][32], b[32][8], c[16][8];
};

/// Lane 4 g + t holds rows g and g + 8 of A and C, column g of B; along k runs of as many as a register has,
/// four lanes side by side, then the next register.
void collect(Warp& w, const Instruction& i, const MatrixShape& shape, Element kind, Operands& all) {
    const int run = elements_of_register(kind);
    const Place* const a = i.many.data() + shape.c_registers;
    const Place* const b = a + shape.a_registers;
    const Place* const c = b + shape.b_registers;
    const bool halves = shape.c_registers == 2;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        const int g = lane >> 2, t = lane & 3;
        for (int r = 0; r < shape.a_registers; ++r)
            for (int j = 0; j < run; ++j)
                all.a[g + 8 * (r & 1)][t * run + j + 4 * run * (r >> 1)] =
                    element(kind, w.lane_of<std::uint32_t>(a[r], lane), j);
        for (int r = 0; r < shape.b_registers; ++r)
            for (int j = 0; j < run; ++j)
                all.b[t * run + j + 4 * run * r][g] = element(kind, w.lane_of<std::uint32_t>(b[r], lane), j);
        for (int j = 0; j < 4; ++j) {
            const auto bits = w.lane_of<std::uint32_t>(c[halves ? j / 2 : j], lane);
            all.c[g + 8 * (j / 2)][2 * t + j % 2] = halves ? element(Element::f16, bits, j % 2)
                                                    : kind == Element::s8
                                                        ? static_cast<std::int32_t>(bits)
                                                        : double{std::bit_cast<float>(bits)};
        }
    }
}

/// The sum that comes out: products are exact, the sum is rounded once, FP32 towards zero as the units do.
std::uint32_t summed(Element kind, double sum) {
    if (kind == Element::s8) return static_cast<std::uint32_t>(static_cast<std::int64_t>(sum));
    if (std::isnan(sum)) return 0x7fffffff;
    return std::bit_cast<std::uint32_t>(static_cast<float>(rounded(sum, format_fp32, Rounding::zero)));
}

void run_f64_product(Warp& w, const Instruction& i) {
    // d0 d1 a b c0 c1
    std::array<double, warp_lanes> out[2];
    for (int lane = 0; lane < warp_lanes; ++lane)
        for (int j = 0; j < 2; ++j) {
            const int row = lane >> 2, column = 2 * (lane & 3) + j;
            double sum = w.lane_of<double>(i.many[static_cast<std::size_t>(4 + j)], lane);
            for (int k = 0; k < 4; ++k)
                sum = std::fma(w.lane_of<double>(i.many[2], 4 * row + k),
                               w.lane_of<double>(i.many[3], 4 * column + k), sum);
            out[j][static_cast<std::size_t>(lane)] = sum;
        }
    w.set(i.many[0], out[0]);
    w.set(i.many[1], out[1]);
    ++w.pc;
}

}  // namespace

int find_matrix_product(const std::string& shape, const std::string& types) {
    for (std::size_t at = 0; at < std::size(shapes); ++at)
        if (shape == shapes[at].shape && types == shapes[at].types) return static_cast<int>(at);
    return -1;
}

const MatrixShape& matrix_shape(int index) { return shapes[index]; }

void run_matrix_product(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    const MatrixShape& shape = shapes[i.number];
    const Element kind = element_of(shape);
    if (kind == Element::f64) return run_f64_product(w, i);
    Operands all = {};
    collect(w, i, shape, kind, all);
    std::array<std::uint32_t, warp_lanes> out[4];
    for (int lane = 0; lane < warp_lanes; ++lane)
        for (int j = 0; j < 4; ++j) {
            const int row = (lane >> 2) + 8 * (j / 2), column = 2 * (lane & 3) + j % 2;
            double sum = all.c[row][column];
            for (int k = 0; k < shape.k; ++k) sum += all.a[row][k] * all.b[k][column];
            if (shape.c_registers == 2) {
                const std::uint32_t half = to_half(sum);
                auto& both = out[j / 2][static_cast<std::size_t>(lane)];
                both = j % 2 == 0 ? half : both | half << 16;
            } else {
                out[j][static_cast<std::size_t>(lane)] = summed(kind, sum);
            }
        }
    for (int r = 0; r < shape.c_registers; ++r) w.set(i.many[static_cast<std::size_t>(r)], out[r]);
    ++w.pc;
}

namespace {

std::uint64_t shared_address(Warp& w, const Instruction& i, int lane) {
    const std::uint64_t address =
        (i.a.width == 4 ? w.lane_of<std::uint32_t>(i.a, lane) : w.lane_of<std::uint64_t>(i.a, lane)) +
        static_cast<std::uint64_t>(i.offset);
    const bool windowed = i.a.width == 8 && address - shared_window < window_bytes;
    return windowed ? address - shared_window : address;
}

/// The row of one of several 8 x 8 matrices of 16 bits, each row at the address of one lane: lane r of matrix
/// m is 8 m + r.
std::byte* matrix_row(Warp& w, const Instruction& i, int matrix, int row, Touch touch) {
    const int lane = 8 * matrix + row;
    return w.shared(shared_address(w, i, lane), 16, touch, lane);
}

}  // namespace

/// number: 1 if transposed.
void run_load_matrix(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    const bool transposed = i.number == 1;
    std::array<std::uint32_t, warp_lanes> out[4] = {};
    for (std::size_t matrix = 0; matrix < i.many.size(); ++matrix) {
        std::uint16_t rows[8][8];
        for (int row = 0; row < 8; ++row)
            std::memcpy(rows[row], matrix_row(w, i, static_cast<int>(matrix), row, Touch::read), 16);
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            const std::size_t g = lane / 4, t = 2 * (lane % 4);
            const std::uint32_t low = transposed ? rows[t][g] : rows[g][t];
            const std::uint32_t high = transposed ? rows[t + 1][g] : rows[g][t + 1];
            out[matrix][lane] = high << 16 | low;
        }
    }
    for (std::size_t matrix = 0; matrix < i.many.size(); ++matrix) w.set(i.many[matrix], out[matrix]);
    ++w.pc;
}

void run_store_matrix(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    for (std::size_t matrix = 0; matrix < i.many.size(); ++matrix) {
        std::uint16_t rows[8][8];
        for (int lane = 0; lane < warp_lanes; ++lane) {
            const int g = lane / 4, t = 2 * (lane % 4);
            const auto bits = w.lane_of<std::uint32_t>(i.many[matrix], lane);
            for (int j = 0; j < 2; ++j)
                (i.number == 1 ? rows[t + j][g] : rows[g][t + j]) =
                    static_cast<std::uint16_t>(bits >> (16 * j));
        }
        for (int row = 0; row < 8; ++row)
            std::memcpy(matrix_row(w, i, static_cast<int>(matrix), row, Touch::write), rows[row], 16);
    }
    ++w.pc;
}

/// cp.async: a: to shared, b: from global with its offset in `target`, c: how many bytes are read. It happens
/// as late as it may, when it is waited for; until then what it will write must not be read.
void run_copy_async(Warp& w, const Instruction& i) {
    const std::int64_t bytes = i.memory.bytes;
    std::uint64_t whole_copies[warp_lanes];
    int count = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const std::uint64_t to = shared_address(w, i, lane);
        const std::uint64_t from = w.lane_of<std::uint64_t>(i.b, lane) +
                                   static_cast<std::uint64_t>(static_cast<std::int32_t>(i.target));
        std::int64_t copied = bytes;
        if (i.c.base != Place::nowhere) copied = w.lane_of<std::uint32_t>(i.c, lane);
        if (copied > bytes)
            w.fault(Result::launch_failed, lane, fmt::format("copies {} of {} bytes", copied, bytes));
        if ((from & static_cast<std::uint64_t>(bytes - 1)) != 0)
            w.fault(Result::misaligned_address, lane, fmt::format("copies {} bytes from {:#x}", bytes, from));
        PendingCopy copy{.lane = lane,
                         .group = w.copy_groups[static_cast<std::size_t>(lane)],
                         .to = to,
                         .bytes = bytes,
                         .copied = copied};
        w.shared(to, bytes, Touch::write, lane);
        std::memset(w.block->shared_written.data() + to, under_way, static_cast<std::size_t>(bytes));
        if (copied > 0) {
            const std::int64_t whole = std::has_single_bit(static_cast<std::uint64_t>(copied)) ? copied : 1;
            for (std::int64_t at = 0; at < copied; at += whole) {
                const std::byte* const there =
                    w.global(from + static_cast<std::uint64_t>(at), whole, Touch::read, lane);
                if (at == 0) copy.from = there;
            }
            if (copied == bytes)
                whole_copies[count++] = from;
            else if (w.block->counted)
                w.block->sectors.note(&from, 1, copied, false);
        }
        w.copies.push_back(copy);
    }
    if (w.block->counted && count > 0) w.block->sectors.note(whole_copies, count, bytes, false);
    ++w.pc;
}

void Warp::finish_copies(int lane, std::uint32_t before_group) {
    for (auto copy = copies.begin(); copy != copies.end();) {
        if (copy->lane != lane || copy->group >= before_group) {
            ++copy;
            continue;
        }
        std::byte* const to = shared(copy->to, copy->bytes, Touch::write, lane);
        std::memset(to, 0, static_cast<std::size_t>(copy->bytes));
        if (copy->copied > 0) std::memcpy(to, copy->from, static_cast<std::size_t>(copy->copied));
        copy = copies.erase(copy);
    }
}

void run_commit_group(Warp& w, const Instruction&) {
    for (std::size_t lane = 0; lane < warp_lanes; ++lane)
        if (w.executing >> lane & 1) ++w.copy_groups[lane];
    ++w.pc;
}

/// number: how many groups may stay under way; all ones: none, and what is in no group is waited for, too.
void run_wait_group(Warp& w, const Instruction& i) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const std::uint32_t groups = w.copy_groups[static_cast<std::size_t>(lane)];
        if (i.number == ~0u)
            w.finish_copies(lane, ~0u);
        else
            w.finish_copies(lane, groups > i.number ? groups - i.number : 0);
    }
    ++w.pc;
}

}  // namespace mantissa::cuda::ptx
