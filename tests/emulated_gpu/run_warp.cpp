// Control flow, barriers, and what the lanes of a warp tell each other.
#include "tests/emulated_gpu/run_warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

void run_nothing(Warp& w, const Instruction&) { ++w.pc; }

void run_branch(Warp& w, const Instruction& i) { w.branch(i.target, w.executing); }

void run_branch_by_index(Warp& w, const Instruction& i) {
    const std::uint32_t lanes = w.executing;
    std::uint32_t left = lanes;
    const std::uint32_t stay = w.active & ~lanes, next = w.pc + 1;
    while (left != 0) {
        const int first = std::countr_zero(left);
        const auto index = w.lane_of<std::uint32_t>(i.a, first);
        if (index >= i.targets.size())
            w.fault(Result::illegal_instruction, first,
                    fmt::format("goes to target {} of {}", index, i.targets.size()));
        std::uint32_t same = 0;
        for (int lane = first; lane < warp_lanes; ++lane)
            if ((left >> lane & 1) && w.lane_of<std::uint32_t>(i.a, lane) == index) same |= 1u << lane;
        w.parked.push_back({i.targets[index], same});
        left &= ~same;
    }
    w.active = stay;
    w.pc = next;
}

void run_call(Warp& w, const Instruction& i) {
    std::array<std::uint32_t, warp_lanes> back;
    back.fill(w.pc + 1);
    w.set(i.d, back);
    w.branch(i.target, w.executing);
}

void run_return(Warp& w, const Instruction& i) {
    std::uint32_t left = w.executing;
    const std::uint32_t stay = w.active & ~left, next = w.pc + 1;
    while (left != 0) {
        const auto to = w.lane_of<std::uint32_t>(i.a, std::countr_zero(left));
        std::uint32_t same = 0;
        for (int lane = 0; lane < warp_lanes; ++lane)
            if ((left >> lane & 1) && w.lane_of<std::uint32_t>(i.a, lane) == to) same |= 1u << lane;
        w.parked.push_back({to, same});
        left &= ~same;
    }
    w.active = stay;
    w.pc = next;
}

void run_exit(Warp& w, const Instruction&) { w.exit_lanes(w.executing); }

void run_trap(Warp& w, const Instruction&) {
    w.fault(Result::launch_failed, std::countr_zero(w.executing), "trap");
}

namespace {

constexpr std::uint32_t barrier_arrives = 16, barrier_reduces = 32;

/// The mask of lanes that the instruction names, which each that executes must be in.
std::uint32_t members_of(Warp& w, const Place& place) {
    const int first = std::countr_zero(w.executing);
    const auto members = w.lane_of<std::uint32_t>(place, first);
    for (int lane = first; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const auto its = w.lane_of<std::uint32_t>(place, lane);
        if ((its >> lane & 1) == 0)
            w.fault(Result::launch_failed, lane,
                    fmt::format("lane {} is not in its own mask {:#010x}", lane, its));
        if (its != members)
            w.fault(Result::launch_failed, lane,
                    fmt::format("lanes name different masks, {:#010x} and {:#010x}", members, its));
    }
    return members;
}

}  // namespace

/// a: the barrier's number, b: how many threads, c: the predicate of a reduction. number: 0 and, 1 or, 2
/// count of a reduction; 16: arrives and does not wait; 32: reduces.
void run_barrier(Warp& w, const Instruction& i) {
    if (!w.gather(w.exists)) return;
    const int first = std::countr_zero(w.executing);
    const auto number = w.lane_of<std::uint32_t>(i.a, first);
    if (number >= w.block->barriers.size())
        w.fault(Result::launch_failed, first,
                fmt::format("barrier {} of {}", number, w.block->barriers.size()));
    const std::uint32_t threads = i.b.base == Place::nowhere ? 0 : w.lane_of<std::uint32_t>(i.b, first);
    if (threads % warp_lanes != 0)
        w.fault(Result::launch_failed, first,
                fmt::format("a barrier of {} threads, no whole warps", threads));
    if (i.number & barrier_reduces) {
        Barrier& barrier = w.block->barriers[number];
        const std::uint32_t holds = (i.operand_negated ? ~w.predicate(i.c) : w.predicate(i.c)) & w.exists;
        barrier.count += static_cast<std::uint32_t>(std::popcount(holds));
        barrier.any |= holds;
        if (holds != w.exists) barrier.all = 0;
        barrier.reductions.emplace_back(&w, &i);
    }
    w.block->arrive(w, static_cast<int>(number), threads, (i.number & barrier_arrives) == 0);
    ++w.pc;
}

void run_warp_barrier(Warp& w, const Instruction& i) {
    if (!w.gather(members_of(w, i.a))) return;
    ++w.warp_interval;
    ++w.pc;
}

/// b: how far or which lane; c: clamp and segments; e: members. number: up, down, bfly, idx; many: a
/// predicate.
void run_shuffle(Warp& w, const Instruction& i) {
    const std::uint32_t members = members_of(w, i.e);
    if (!w.gather(members)) return;
    std::array<std::uint32_t, warp_lanes> out = {};
    std::uint32_t inside = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const auto by = static_cast<int>(w.lane_of<std::uint32_t>(i.b, lane) & 31);
        const auto packed = w.lane_of<std::uint32_t>(i.c, lane);
        const int clamp = packed & 31, segment = packed >> 8 & 31;
        const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
        int from = 0;
        bool holds = false;
        if (i.number == 0) {
            from = lane - by;
            holds = from >= last;
        } else {
            from = i.number == 1 ? lane + by : i.number == 2 ? lane ^ by : first | (by & ~segment);
            holds = from <= last;
        }
        if (!holds) from = lane;
        inside |= std::uint32_t{holds} << lane;
        if ((members >> from & 1) == 0)
            w.fault(Result::launch_failed, lane,
                    fmt::format("reads the register of lane {}, which does not take part (mask {:#010x})",
                                from, members));
        out[static_cast<std::size_t>(lane)] = w.lane_of<std::uint32_t>(i.a, from);
    }
    w.set(i.d, out);
    if (!i.many.empty()) w.set_predicate(i.many[0], inside);
    ++w.pc;
}

/// number: all, any, uni, ballot.
void run_vote(Warp& w, const Instruction& i) {
    const std::uint32_t members = members_of(w, i.e);
    if (!w.gather(members)) return;
    const std::uint32_t holds = (i.operand_negated ? ~w.predicate(i.a) : w.predicate(i.a)) & members;
    const bool all = holds == members, any = holds != 0;
    if (i.number == 3) {
        std::array<std::uint32_t, warp_lanes> out;
        out.fill(holds);
        w.set(i.d, out);
    } else {
        const bool result = i.number == 0 ? all : i.number == 1 ? any : all || !any;
        w.set_predicate(i.d, result ? ~0u : 0);
    }
    ++w.pc;
}

void run_active_mask(Warp& w, const Instruction& i) {
    std::array<std::uint32_t, warp_lanes> out;
    out.fill(w.executing);
    w.set(i.d, out);
    ++w.pc;
}

/// number: 0 any, 1 all.
void run_match(Warp& w, const Instruction& i) {
    const std::uint32_t members = members_of(w, i.e);
    if (!w.gather(members)) return;
    const auto value = [&](int lane) {
        return i.a.width == 8 ? w.lane_of<std::uint64_t>(i.a, lane) : w.lane_of<std::uint32_t>(i.a, lane);
    };
    std::array<std::uint32_t, warp_lanes> out = {};
    bool same = true;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((members >> lane & 1) == 0) continue;
        for (int other = 0; other < warp_lanes; ++other)
            if ((members >> other & 1) && value(other) == value(lane))
                out[static_cast<std::size_t>(lane)] |= 1u << other;
        same = same && out[static_cast<std::size_t>(lane)] == members;
    }
    if (i.number == 1) {
        if (!same) out.fill(0);
        if (!i.many.empty()) w.set_predicate(i.many[0], same ? ~0u : 0);
    }
    w.set(i.d, out);
    ++w.pc;
}

/// redux: number in the order add, min, max of unsigned, min, max of signed, and, or, xor.
void run_reduce(Warp& w, const Instruction& i) {
    const std::uint32_t members = members_of(w, i.e);
    if (!w.gather(members)) return;
    const int first = std::countr_zero(members);
    auto sum = w.lane_of<std::uint32_t>(i.a, first);
    for (int lane = first + 1; lane < warp_lanes; ++lane) {
        if ((members >> lane & 1) == 0) continue;
        const auto x = w.lane_of<std::uint32_t>(i.a, lane);
        const auto s = static_cast<std::int32_t>(sum), y = static_cast<std::int32_t>(x);
        const std::uint32_t all[] = {sum + x,
                                     std::min(sum, x),
                                     std::max(sum, x),
                                     static_cast<std::uint32_t>(std::min(s, y)),
                                     static_cast<std::uint32_t>(std::max(s, y)),
                                     sum & x,
                                     sum | x,
                                     sum ^ x};
        sum = all[i.number];
    }
    std::array<std::uint32_t, warp_lanes> out;
    out.fill(sum);
    w.set(i.d, out);
    ++w.pc;
}

void run_elect(Warp& w, const Instruction& i) {
    const std::uint32_t members = members_of(w, i.e);
    if (!w.gather(members)) return;
    const int leader = std::countr_zero(members);
    std::array<std::uint32_t, warp_lanes> out;
    out.fill(static_cast<std::uint32_t>(leader));
    if (i.d.base != Place::nowhere) w.set(i.d, out);
    if (!i.many.empty()) w.set_predicate(i.many[0], 1u << leader);
    ++w.pc;
}

}  // namespace mantissa::cuda::ptx
