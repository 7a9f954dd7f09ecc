// How a warp goes through the code: groups of lanes, the one at the lowest place first, so that those that
// parted meet again; who waits for others is parked.
#include "tests/emulated_gpu/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace mantissa::inline v0::cuda::ptx {

namespace {

/// Instructions after which another warp has its turn: one that waits for a number in memory lets others
/// write it.
constexpr int turn = 1 << 16;

std::string list(std::uint32_t lanes) { return fmt::format("{:#010x}", lanes); }

}  // namespace

void Warp::begin(Block& of, int its_number) {
    block = &of;
    program = of.launch->program;
    number = its_number;
    const Dimensions& size = of.launch->block;
    const auto threads = static_cast<int>(size.count());
    const int lanes = std::min(warp_lanes, threads - number * warp_lanes);
    exists = active = lanes == warp_lanes ? ~0u : (1u << lanes) - 1;
    exited = 0;
    pc = of.launch->kernel->first;
    parked.clear();
    copies.clear();
    copy_groups.fill(0);
    state = State::runs;
    warp_interval = 0;
    lane_instructions = flops = 0;
    products.clear();
    product_group = 0;
    issued_products = 0;
    fenced.clear();
    // A register that was never written reads as NaN.
    registers.assign(static_cast<std::size_t>(program->register_bytes), std::byte{0xff});
    const auto local_bytes = static_cast<std::size_t>(of.launch->kernel->local) * warp_lanes;
    local.resize(local_bytes);
    local_written.assign(local_bytes, std::byte{0});
    nothing.resize(8 * warp_lanes);
    specials.resize(static_cast<std::size_t>(Special::count_of_them) * 4 * warp_lanes);
    bases[Place::registers] = registers.data();
    bases[Place::constants] = const_cast<std::byte*>(program->constants.data());
    bases[Place::specials] = specials.data();
    bases[Place::nowhere] = nothing.data();
    const auto put = [&](Special which, int lane, std::uint32_t value) {
        std::memcpy(specials.data() +
                        (static_cast<std::size_t>(which) * warp_lanes + static_cast<std::size_t>(lane)) * 4,
                    &value, sizeof value);
    };
    const Dimensions& grid = of.launch->grid;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        const auto linear = static_cast<std::uint32_t>(thread(lane));
        const std::uint32_t one = 1u << lane;
        put(Special::tid_x, lane, linear % size.x);
        put(Special::tid_y, lane, linear / size.x % size.y);
        put(Special::tid_z, lane, linear / size.x / size.y);
        put(Special::ntid_x, lane, size.x);
        put(Special::ntid_y, lane, size.y);
        put(Special::ntid_z, lane, size.z);
        put(Special::ctaid_x, lane, of.place.x);
        put(Special::ctaid_y, lane, of.place.y);
        put(Special::ctaid_z, lane, of.place.z);
        put(Special::nctaid_x, lane, grid.x);
        put(Special::nctaid_y, lane, grid.y);
        put(Special::nctaid_z, lane, grid.z);
        put(Special::laneid, lane, static_cast<std::uint32_t>(lane));
        put(Special::warpid, lane, static_cast<std::uint32_t>(number));
        put(Special::nwarpid, lane, static_cast<std::uint32_t>(of.warps.size()));
        put(Special::smid, lane, of.index % 16);
        put(Special::nsmid, lane, 16);
        put(Special::gridid, lane, of.launch->number);
        put(Special::lanemask_eq, lane, one);
        put(Special::lanemask_lt, lane, one - 1);
        put(Special::lanemask_le, lane, one | (one - 1));
        put(Special::lanemask_gt, lane, ~(one | (one - 1)));
        put(Special::lanemask_ge, lane, ~(one - 1));
        put(Special::dynamic_smem_size, lane, static_cast<std::uint32_t>(of.launch->dynamic_shared));
        put(Special::total_smem_size, lane, static_cast<std::uint32_t>(of.shared_bytes.size()));
    }
}

void Warp::fault(Result result, int lane, const std::string& what) const {
    const std::uint32_t at =
        std::min<std::uint32_t>(pc, static_cast<std::uint32_t>(program->code.size() - 1));
    const int line = program->code[at].line;
    std::string text = line > 0 && line <= static_cast<int>(program->lines.size())
                           ? program->lines[static_cast<std::size_t>(line - 1)]
                           : "";
    std::replace(text.begin(), text.end(), '\t', ' ');
    text.erase(0, text.find_first_not_of(' '));
    const Dimensions& size = block->launch->block;
    const auto linear = static_cast<std::uint32_t>(thread(lane));
    throw Fault{
        result,
        fmt::format("kernel {}, PTX line {} \"{}\", block ({}, {}, {}), thread ({}, {}, {}): {}",
                    block->launch->kernel->name, line, text, block->place.x, block->place.y, block->place.z,
                    linear % size.x, linear / size.x % size.y, linear / size.x / size.y, what),
        block->index};
}

void Warp::join_groups() {
    std::sort(parked.begin(), parked.end(),
              [](const LaneGroup& x, const LaneGroup& y) { return x.pc < y.pc; });
    for (std::size_t i = 0; i + 1 < parked.size();) {
        if (parked[i].pc == parked[i + 1].pc && (parked[i].needed != 0) == (parked[i + 1].needed != 0)) {
            parked[i].lanes |= parked[i + 1].lanes;
            parked[i].needed |= parked[i + 1].needed;
            parked.erase(parked.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        } else {
            ++i;
        }
    }
}

/// Makes the lowest group that can run the one that runs. False if all lanes have exited.
bool Warp::pick_group() {
    if (active != 0) {
        if (parked.empty()) return true;
        parked.push_back({pc, active});
        active = 0;
    }
    join_groups();
    if (parked.empty()) return false;
    auto chosen =
        std::find_if(parked.begin(), parked.end(), [](const LaneGroup& g) { return g.needed == 0; });
    if (chosen == parked.end())
        chosen = std::find_if(parked.begin(), parked.end(),
                              [](const LaneGroup& g) { return (g.needed & ~g.lanes) == 0; });
    if (chosen == parked.end()) {
        const LaneGroup& first = parked.front();
        pc = first.pc;
        active = first.lanes;
        std::string others;
        if (const std::uint32_t gone = first.needed & ~exists)
            others += fmt::format("; lanes {} do not exist", list(gone));
        if (const std::uint32_t gone = first.needed & exited)
            others += fmt::format("; lanes {} have exited", list(gone));
        for (std::size_t i = 1; i < parked.size(); ++i)
            others += fmt::format("; lanes {} wait at PTX line {}", list(parked[i].lanes),
                                  program->code[parked[i].pc].line);
        fault(Result::launch_failed, std::countr_zero(first.lanes),
              fmt::format("lanes {} wait for lanes {}, which do not come here{}", list(first.lanes),
                          list(first.needed & ~first.lanes), others));
    }
    pc = chosen->pc;
    active = chosen->lanes;
    parked.erase(chosen);
    return true;
}

bool Warp::gather(std::uint32_t needed) {
    if ((needed & ~executing) == 0) return true;
    parked.push_back({pc, executing, needed});
    active &= ~executing;
    ++pc;  // of those whose guard is false
    return false;
}

void Warp::branch(std::uint32_t to, std::uint32_t lanes) {
    const std::uint32_t stay = active & ~lanes;
    if (stay == 0) {
        pc = to;
        return;
    }
    parked.push_back({to, lanes});
    active = stay;
    ++pc;
}

void Warp::exit_lanes(std::uint32_t lanes) {
    exited |= lanes;
    active &= ~lanes;
    ++pc;
}

void Warp::run() {
    const Instruction* const code = program->code.data();
    const auto size = static_cast<std::uint32_t>(program->code.size());
    for (int left = turn; left > 0; --left) {
        if (active == 0 || !parked.empty()) {
            if (!pick_group()) {
                state = State::done;
                return;
            }
        }
        // Lanes that were parted may have to meet at any place: with others about, one instruction at a time.
        if (pc >= size) fault(Result::illegal_instruction, 0, "runs past the end of the code");
        const Instruction& instruction = code[pc];
        executing = active;
        if (instruction.guard.base != Place::nowhere) {
            const std::uint32_t holds = predicate(instruction.guard);
            executing &= instruction.guard_negated ? ~holds : holds;
            if (executing == 0) {
                ++pc;
                continue;
            }
        }
        const auto lanes = static_cast<std::uint64_t>(std::popcount(executing));
        lane_instructions += lanes;
        flops += lanes * static_cast<std::uint64_t>(instruction.flops);
        if (!products.empty()) judge_products(instruction);
        instruction.run(*this, instruction);
        if (state != State::runs) return;
    }
    if (lane_instructions > static_cast<std::uint64_t>(block->launch->max_instructions))
        fault(Result::launch_timeout, 0, "the kernel does not come to an end");
}

}  // namespace mantissa::cuda::ptx
