// Products of four warps, wgmma.mma_async: where a descriptor finds an operand in shared memory, what the
// product is, and what is judged of it until it is waited for. PTX ISA 8.7, section 9.7.15; the canonical
// layouts of shared memory as CUTLASS has them (cute/arch/mma_sm90_desc.hpp).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tests/emulated_gpu/run_memory.h"
#include "tests/emulated_gpu/run_warp.h"
#include "tests/emulated_gpu/small_formats.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

constexpr int warps_together = 4, rows_of_warp = 16, terms = 16, most_columns = 256;
constexpr int piece = 16;  // bytes, eight numbers: what is moved together

/// An operand in shared memory: numbers by `mn`, the row of the left one or the column of the right one, and
/// by `k`, the term. `k_major`: terms lie side by side.
struct Layout {
    Layout(std::uint64_t descriptor, bool is_k_major)
        : start((descriptor & 0x3fff) * piece),
          leading((descriptor >> 16 & 0x3fff) * piece),
          stride((descriptor >> 32 & 0x3fff) * piece),
          base_offset(descriptor >> 49 & 7),
          pieces_of_row(std::array<std::uint64_t, 4>{
              1, 8, 4, 2}[descriptor >> 62]),  // no swizzle, of 128, 64 and 32 bytes
          k_major(is_k_major) {}

    /// The address of the piece that holds an element.
    std::uint64_t at(int mn, int k) const {
        const auto across = static_cast<std::uint64_t>(k_major ? mn : k);  // rows, eight to a pattern
        const auto along = static_cast<std::uint64_t>(k_major ? k : mn) / 8;
        std::uint64_t address = start + across % 8 * piece * pieces_of_row;
        if (pieces_of_row == 1 && !k_major)  // here the two distances are the other way round
            address += across / 8 * leading + along * stride;
        else if (pieces_of_row == 1)
            address += across / 8 * stride + along * leading;
        else
            address += across / 8 * stride + along % pieces_of_row * piece + along / pieces_of_row * leading;
        return address ^ (address >> 7 & (pieces_of_row - 1)) << 4;
    }

    std::uint64_t start, leading, stride, base_offset, pieces_of_row;
    bool k_major;
};

double number_of(bool is_bf16, std::uint32_t bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    return is_bf16 ? bf16_to_float(half) : half_to_float(half);
}

/// Reads what a descriptor says, as the lanes of the warp in turn.
class SharedReader {
  public:
    SharedReader(Warp& warp, bool is_bf16, std::vector<std::uint32_t>& pieces)
        : w_(warp), is_bf16_(is_bf16), pieces_(pieces) {}

    /// to[mn - first][k]
    void read(const Layout& layout, int first, int count, double (*to)[terms]) {
        if (layout.base_offset != 0)
            w_.fault(Result::launch_failed, 0, "a descriptor with a base offset is not emulated");
        const int mn_step = layout.k_major ? 1 : 8, k_step = layout.k_major ? 8 : 1;
        for (int mn = 0; mn < count; mn += mn_step)
            for (int k = 0; k < terms; k += k_step) {
                std::uint16_t numbers[8];
                std::memcpy(numbers, piece_at(layout.at(first + mn, k)), sizeof numbers);
                for (int i = 0; i < 8; ++i)
                    (layout.k_major ? to[mn][k + i] : to[mn + i][k]) = number_of(is_bf16_, numbers[i]);
            }
    }

  private:
    const std::byte* piece_at(std::uint64_t address) {
        const int lane = static_cast<int>(pieces_.size() % warp_lanes);
        const std::byte* const there = w_.shared(address, piece, Touch::read, lane);
        WarpgroupFacts& facts = w_.block->of_warpgroups;
        for (std::uint64_t at = address / 2; at < (address + piece) / 2; ++at) {
            const WarpgroupFacts::Write& write = facts.writes[at];
            if (write.thread >= 0 && facts.fences[static_cast<std::size_t>(write.thread)] == write.fences)
                w_.fault(
                    Result::launch_failed, lane,
                    fmt::format("reads 16 bytes at {:#x} of shared memory, which thread {} wrote with no "
                                "fence.proxy.async behind it",
                                address, write.thread));
        }
        ++facts.readers[address / piece];
        pieces_.push_back(static_cast<std::uint32_t>(address / piece));
        return there;
    }

    Warp& w_;
    bool is_bf16_;
    std::vector<std::uint32_t>& pieces_;
};

std::uint32_t summed(double sum) {
    if (std::isnan(sum)) return 0x7fffffff;
    return std::bit_cast<std::uint32_t>(static_cast<float>(rounded(sum, format_fp32, Rounding::zero)));
}

bool same(const Place& x, const Place& y) { return x.base == y.base && x.offset == y.offset; }

bool holds(const std::vector<Place>& list, const Place& one) {
    return one.base == Place::registers &&
           std::ranges::any_of(list, [&](const Place& other) { return same(one, other); });
}

/// All warps of a warpgroup issue the same products.
void judge_together(Warp& w, const Instruction& i) {
    const int first = w.number / warps_together * warps_together;
    if (w.exists != ~0u || std::ssize(w.block->warps) < first + warps_together)
        w.fault(Result::launch_failed, 0, "a product of four warps, of which the block has fewer");
    const WarpgroupFacts::Product own{w.pc, i.a.base == Place::nowhere ? 0 : w.lane_of<std::uint64_t>(i.a, 0),
                                      w.lane_of<std::uint64_t>(i.b, 0)};
    for (int lane = 1; lane < warp_lanes; ++lane)
        if (w.lane_of<std::uint64_t>(i.b, lane) != own.right ||
            (own.left != 0 && w.lane_of<std::uint64_t>(i.a, lane) != own.left))
            w.fault(Result::launch_failed, lane, "has another descriptor than lane 0");
    auto& issued = w.block->of_warpgroups.issued[static_cast<std::size_t>(w.number / warps_together)];
    if (w.issued_products == issued.size()) issued.push_back(own);
    const WarpgroupFacts::Product& others = issued[w.issued_products++];
    if (others.pc != own.pc)
        w.fault(Result::launch_failed, 0,
                fmt::format("another warp of its four is at PTX line {} instead",
                            w.program->code[others.pc].line));
    if (others.left != own.left || others.right != own.right)
        w.fault(Result::launch_failed, 0, "another warp of its four has another descriptor");
}

/// Registers as they were at the last wgmma.fence, or as products have left them since.
void judge_fence(Warp& w, const Instruction& i) {
    if (w.fenced.empty()) w.fault(Result::launch_failed, 0, "no wgmma.fence came before");
    for (const Place& one : i.many)
        if (one.base == Place::registers &&
            std::memcmp(w.at(one), w.fenced.data() + one.offset, 4 * warp_lanes) != 0)
            w.fault(Result::launch_failed, 0, "one of its registers was changed since the last wgmma.fence");
}

}  // namespace

void run_warpgroup_product(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    judge_together(w, i);
    judge_fence(w, i);
    const bool is_bf16 = (i.number & product_of_bf16) != 0;
    const auto columns = static_cast<int>(i.target);
    const std::size_t sums = i.target / 2;
    PendingProduct made{.group = w.product_group,
                        .sums = {i.many.begin(), i.many.begin() + static_cast<std::ptrdiff_t>(sums)},
                        .left = {i.many.begin() + static_cast<std::ptrdiff_t>(sums), i.many.end()},
                        .pieces = {}};
    static thread_local double a[rows_of_warp][terms], b[most_columns][terms];
    SharedReader reader(w, is_bf16, made.pieces);
    if (made.left.empty()) {
        const Layout layout(w.lane_of<std::uint64_t>(i.a, 0), (i.number & left_is_transposed) == 0);
        reader.read(layout, w.number % warps_together * rows_of_warp, rows_of_warp, a);
    }
    for (int lane = 0; lane < warp_lanes && !made.left.empty(); ++lane)
        for (int r = 0; r < 4; ++r)
            for (int j = 0; j < 2; ++j)
                a[lane / 4 + 8 * (r % 2)][2 * (lane % 4) + j + 8 * (r / 2)] = number_of(
                    is_bf16,
                    w.lane_of<std::uint32_t>(made.left[static_cast<std::size_t>(r)], lane) >> 16 * j);
    reader.read(Layout(w.lane_of<std::uint64_t>(i.b, 0), (i.number & right_is_transposed) == 0), 0, columns,
                b);
    const bool adds = ((i.operand_negated ? ~w.predicate(i.c) : w.predicate(i.c)) & 1) != 0;
    for (std::size_t r = 0; r < sums; ++r) {
        std::array<std::uint32_t, warp_lanes> out;
        for (int lane = 0; lane < warp_lanes; ++lane) {
            const int row = lane / 4 + 8 * static_cast<int>(r / 2 % 2);
            const int column = 8 * static_cast<int>(r / 4) + 2 * (lane % 4) + static_cast<int>(r % 2);
            double sum = adds ? double{std::bit_cast<float>(w.lane_of<std::uint32_t>(i.many[r], lane))} : 0;
            for (int k = 0; k < terms; ++k) sum += a[row][k] * b[column][k];
            out[static_cast<std::size_t>(lane)] = summed(sum);
        }
        w.set(i.many[r], out);
        std::memcpy(w.fenced.data() + i.many[r].offset, out.data(), sizeof out);
    }
    w.products.push_back(std::move(made));
    ++w.pc;
}

void Warp::judge_products(const Instruction& i) const {
    const bool is_product = i.run == run_warpgroup_product;
    const bool reads_many = i.run == run_store || i.run == run_store_matrix || i.run == run_pack;
    for (const PendingProduct& product : products) {
        const auto touches = [&](const Place& place, bool written) {
            if (holds(product.sums, place) || (written && holds(product.left, place)))
                fault(Result::launch_failed, 0,
                      "touches a register of a wgmma.mma_async that is under way: wgmma.wait_group comes "
                      "before");
        };
        for (const Place* place : {&i.a, &i.b, &i.c, &i.e, &i.guard}) touches(*place, false);
        touches(i.d, true);
        if (!is_product) {
            for (const Place& place : i.many) touches(place, !reads_many);
            continue;
        }
        const std::size_t sums = i.target / 2;
        for (std::size_t at = sums; at < i.many.size(); ++at) touches(i.many[at], false);
        // A product may add to the sums of one that is under way, to all of them as they stand.
        const bool adds_to_it = sums == product.sums.size() &&
                                std::equal(product.sums.begin(), product.sums.end(), i.many.begin(), same);
        for (std::size_t at = 0; at < sums && !adds_to_it; ++at) touches(i.many[at], true);
    }
}

void Warp::finish_products(std::uint32_t before_group) {
    std::erase_if(products, [&](const PendingProduct& product) {
        if (product.group >= before_group) return false;
        for (const std::uint32_t at : product.pieces) --block->of_warpgroups.readers[at];
        return true;
    });
}

void Warp::note_for_products(std::uint64_t address, std::int64_t bytes, int lane) {
    WarpgroupFacts& facts = block->of_warpgroups;
    const std::uint64_t end = address + static_cast<std::uint64_t>(bytes);
    for (std::uint64_t at = address / piece; at * piece < end; ++at)
        if (facts.readers[at] != 0)
            fault(Result::launch_failed, lane,
                  fmt::format(
                      "writes {} bytes at {:#x} of shared memory, which a wgmma.mma_async that is under "
                      "way reads",
                      bytes, address));
    const auto writer = static_cast<std::size_t>(thread(lane));
    for (std::uint64_t at = address / 2; 2 * at < end; ++at)
        facts.writes[at] = {thread(lane), facts.fences[writer]};
}

void run_product_fence(Warp& w, const Instruction&) {
    if (!w.gather(w.exists)) return;
    w.fenced = w.registers;
    ++w.pc;
}

void run_commit_products(Warp& w, const Instruction&) {
    if (!w.gather(w.exists)) return;
    ++w.product_group;
    ++w.pc;
}

/// number: how many groups may stay under way. What was not committed is not waited for.
void run_wait_products(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    w.finish_products(w.product_group > i.number ? w.product_group - i.number : 0);
    ++w.pc;
}

void run_proxy_fence(Warp& w, const Instruction&) {
    if (w.program->by_warpgroups)
        for (int lane = 0; lane < warp_lanes; ++lane)
            if (w.executing >> lane & 1)
                ++w.block->of_warpgroups.fences[static_cast<std::size_t>(w.thread(lane))];
    ++w.pc;
}

void Block::begin_warpgroups() {
    const std::size_t bytes = shared_bytes.size(), groups = warps.size() / warps_together + 1;
    of_warpgroups.issued.assign(groups, {});
    of_warpgroups.readers.assign(bytes / piece + 1, 0);
    of_warpgroups.writes.assign(bytes / 2 + 1, {});
    of_warpgroups.fences.assign(warps.size() * warp_lanes, 0);
}

void Block::judge_warpgroups() const {
    for (const auto& warp : warps) {
        if (!warp->products.empty())
            warp->fault(Result::launch_failed, 0, "ends while a wgmma.mma_async is under way");
        const auto group = static_cast<std::size_t>(warp->number / warps_together);
        if (warp->issued_products != of_warpgroups.issued[group].size())
            warp->fault(Result::launch_failed, 0,
                        fmt::format("ends after {} products of its four warps, of which another made {}",
                                    warp->issued_products, of_warpgroups.issued[group].size()));
    }
}

}  // namespace mantissa::cuda::ptx
