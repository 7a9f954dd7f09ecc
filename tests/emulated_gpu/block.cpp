// A block of threads: its warps in turn, its barriers, its shared memory.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/whole_units.h"
#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

void Block::run(const LaunchedKernel& launched, std::uint32_t its_index) {
    launch = &launched;
    index = its_index;
    place = {index % launched.grid.x, index / launched.grid.x % launched.grid.y,
             index / launched.grid.x / launched.grid.y};
    const auto bytes = static_cast<std::size_t>(launched.kernel->static_shared + launched.dynamic_shared);
    shared_bytes.assign(bytes, std::byte{0xff});
    shared_written.assign(bytes, 0);
    accesses.next_interval();
    barriers.fill({});
    sectors = {};
    const std::uint64_t last = launched.grid.count() - 1;
    counted = launched.counted && (index == 0 || index == last / 2 || index == last);
    const auto count = static_cast<std::size_t>(ceil_div(launched.block.count(), warp_lanes));
    while (warps.size() < count) warps.push_back(std::make_unique<Warp>());
    warps.resize(count);
    for (std::size_t i = 0; i < count; ++i) warps[i]->begin(*this, static_cast<int>(i));
    if (launched.program->by_warpgroups) begin_warpgroups();
    for (bool any = true; any;) {
        any = false;
        for (const auto& warp : warps) {
            if (warp->state != Warp::State::runs) continue;
            any = true;
            warp->run();
        }
    }
    for (const auto& warp : warps)
        if (warp->state == Warp::State::at_barrier) stuck();
    if (launched.program->by_warpgroups) judge_warpgroups();
}

/// Some warps wait at a barrier and all others are done.
void Block::stuck() const {
    const Warp* waiting = nullptr;
    const Warp* other = nullptr;
    for (const auto& warp : warps) {
        if (warp->state != Warp::State::at_barrier)
            other = warp.get();
        else if (!waiting)
            waiting = warp.get();
        else if (waiting->barrier != warp->barrier)
            other = warp.get();
    }
    const Barrier& there = barriers[static_cast<std::size_t>(waiting->barrier)];
    waiting->fault(
        Result::launch_failed, 0,
        fmt::format("waits at barrier {} for {} threads of which {} came; {}", waiting->barrier,
                    there.expected, there.arrived,
                    !other ? std::string("no others are left")
                    : other->state == Warp::State::done
                        ? fmt::format("warp {} has exited", other->number)
                        : fmt::format("warp {} waits at barrier {}", other->number, other->barrier)));
}

void Block::arrive(Warp& warp, int number, std::uint32_t threads, bool waits) {
    Barrier& barrier = barriers[static_cast<std::size_t>(number)];
    const auto all = static_cast<std::uint32_t>(warps.size()) * warp_lanes;
    const std::uint32_t expected = threads ? threads : all;
    if (barrier.arrived != 0 && barrier.expected != expected)
        warp.fault(Result::launch_failed, 0,
                   fmt::format("comes to barrier {} for {} threads, others for {}", number, expected,
                               barrier.expected));
    barrier.expected = expected;
    barrier.arrived += warp_lanes;
    if (waits) {
        warp.state = Warp::State::at_barrier;
        warp.barrier = number;
    }
    if (barrier.arrived < barrier.expected) return;
    for (const auto& one : warps)
        if (one->state == Warp::State::at_barrier && one->barrier == number) one->state = Warp::State::runs;
    for (const auto& [of, instruction] : barrier.reductions) {
        of->executing = of->exists;
        if (instruction->d.width == 0) {
            const bool holds = (instruction->number & 15) == 0 ? barrier.all != 0 : barrier.any != 0;
            of->set_predicate(instruction->d, holds ? ~0u : 0);
        } else {
            std::array<std::uint32_t, warp_lanes> counts;
            counts.fill(barrier.count);
            of->set(instruction->d, counts);
        }
    }
    barrier = {};
    accesses.next_interval();
}

void SectorCounter::note(const std::uint64_t* addresses, int count, std::int64_t bytes, bool writes) {
    std::vector<std::uint64_t> touched;
    for (int i = 0; i < count; ++i)
        for (std::uint64_t at = addresses[i] / 32;
             at <= (addresses[i] + static_cast<std::uint64_t>(bytes) - 1) / 32; ++at)
            touched.push_back(at);
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    requested[writes] += touched.size();
    seen[writes].insert(seen[writes].end(), touched.begin(), touched.end());
}

std::uint64_t SectorCounter::distinct(bool writes) {
    std::sort(seen[writes].begin(), seen[writes].end());
    seen[writes].erase(std::unique(seen[writes].begin(), seen[writes].end()), seen[writes].end());
    return seen[writes].size();
}

}  // namespace mantissa::cuda::ptx
