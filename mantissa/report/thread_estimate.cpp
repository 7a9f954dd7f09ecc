#include "mantissa/report/thread_estimate.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <vector>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/report/quantities.h"

namespace mantissa::inline v0 {

namespace {

using SteadyClock = std::chrono::steady_clock;

/// The median time of a loop of two blocks.
double loop_seconds(ThreadPool& pool, FunctionRef<void()> block) {
    constexpr int loops = 1000;
    std::vector<double> seconds;
    for (int loop = 0; loop < loops; ++loop) {
        const Stopwatch watch;
        pool.for_each_block(2, [&](std::int64_t, int) { block(); });
        seconds.push_back(watch.seconds());
    }
    return median(seconds);
}

}  // namespace

PoolCosts measured_pool_costs() {
    if (available_cores() < 2) return {};
    ThreadPool pool(2, 2);
    constexpr std::chrono::microseconds block{5};
    const double meeting = loop_seconds(pool, [&] {
        for (const auto end = SteadyClock::now() + block; SteadyClock::now() < end;) _mm_pause();
    });
    // Both threads write one word in turns, as threads that take tickets do.
    constexpr int writes = 200;
    std::atomic<int> word{0};
    const double by_turns = loop_seconds(pool, [&] {
        for (int i = 0; i < writes; ++i) word.fetch_add(1);
    });
    const double alone = std::chrono::duration<double>(block).count();
    return {.meeting = std::max(0.0, meeting - alone), .ticket = by_turns / (2 * writes)};
}

namespace {

double sum_of(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0);
}

double seconds_in_loops(const RecordedLaunch& launch) {
    double seconds = 0;
    for (const RecordedLoop& loop : launch.loops) seconds += loop.seconds;
    return seconds;
}

double seconds_outside_loops(const RecordedLaunch& launch) {
    return std::max(0.0, launch.seconds - seconds_in_loops(launch));
}

/// A launch of several runs. A disturbance only lengthens a run, so the least time of each block counts.
RecordedLaunch min_launch(const std::vector<RecordedStep>& steps, std::size_t index) {
    RecordedLaunch least = steps.front().launches[index];
    double outside = seconds_outside_loops(least);
    for (const RecordedStep& step : steps) {
        const RecordedLaunch& launch = step.launches[index];
        outside = std::min(outside, seconds_outside_loops(launch));
        for (std::size_t i = 0; i < least.loops.size(); ++i)
            for (std::size_t block = 0; block < least.loops[i].blocks.size(); ++block)
                least.loops[i].blocks[block] =
                    std::min(least.loops[i].blocks[block], launch.loops.at(i).blocks.at(block));
    }
    least.seconds = outside;
    for (RecordedLoop& loop : least.loops) least.seconds += loop.seconds = sum_of(loop.blocks);
    return least;
}

void scale(RecordedLaunch& launch, double seconds) {
    const double factor = launch.seconds > 0 ? seconds / launch.seconds : 1;
    launch.seconds = seconds;
    for (RecordedLoop& loop : launch.loops) {
        loop.seconds *= factor;
        for (double& block : loop.blocks) block *= factor;
    }
}

/// Adds a loop's lost time, by cause.
void add_lost(LostTime& lost, const RecordedLoop& loop, int threads) {
    const double share = sum_of(loop.blocks) / threads;
    const double heedless = seconds_on(loop, threads, 0, false);
    lost.waits += seconds_on(loop, threads, 0) - heedless;
    const double longest = *std::ranges::max_element(loop.blocks);
    const auto blocks = static_cast<double>(loop.blocks.size());
    // Others wait for a block that is longer than a thread's share and than twice the mean.
    const bool by_one = longest > share && longest > 2 * share * threads / blocks;
    (by_one ? lost.long_block : lost.few_blocks) += std::max(0.0, heedless - share);
}

}  // namespace

RecordedStep typical_step(const std::vector<RecordedStep>& recorded, const ProfiledStep& undisturbed) {
    check(!recorded.empty(), "a typical step is of one step or more");
    RecordedStep typical{.seconds = undisturbed.wall_seconds, .launches = {}};
    for (std::size_t i = 0; i < undisturbed.profile.size(); ++i) {
        typical.launches.push_back(min_launch(recorded, i));
        scale(typical.launches.back(), undisturbed.profile[i]);
    }
    return typical;
}

Hindrance LostTime::greatest() const {
    const std::pair<double, Hindrance> causes[] = {{serial, Hindrance::serial},
                                                   {few_blocks, Hindrance::few_blocks},
                                                   {long_block, Hindrance::long_block},
                                                   {waits, Hindrance::waits}};
    const auto& greatest = *std::ranges::max_element(causes);
    return greatest.first > 0 ? greatest.second : Hindrance::none;
}

double seconds_on(const RecordedLoop& loop, int threads, double ticket, bool heeds_waits) {
    const auto count = static_cast<std::int64_t>(loop.blocks.size());
    const std::int64_t share = threads == 1         ? count
                               : loop.waits.empty() ? ThreadPool::blocks_a_ticket(count, threads)
                                                    : 1;
    std::priority_queue<double, std::vector<double>, std::greater<>> free;
    for (int thread = 0; thread < threads; ++thread) free.push(0);
    std::vector<double> ends(loop.blocks.size());
    auto wait = loop.waits.begin();
    double word_is_free = 0, end = 0;
    for (std::int64_t first = 0; first < count; first += share) {
        double now = std::max(free.top(), word_is_free) + ticket;
        free.pop();
        word_is_free = now;
        for (std::int64_t block = first; block < std::min(first + share, count); ++block) {
            for (; wait != loop.waits.end() && wait->block == block; ++wait)
                if (heeds_waits) now = std::max(now, ends[static_cast<std::size_t>(wait->awaited)]);
            now += loop.blocks[static_cast<std::size_t>(block)];
            ends[static_cast<std::size_t>(block)] = now;
        }
        free.push(now);
        end = std::max(end, now);
    }
    return end;
}

LaunchEstimate estimate_launch(const RecordedLaunch& launch, std::int64_t bytes, int threads,
                               const PlannedMachine& machine) {
    LaunchEstimate estimate{.computing = seconds_outside_loops(launch)};
    for (const RecordedLoop& loop : launch.loops) {
        const double alone = seconds_on(loop, threads, 0);
        estimate.computing += alone;
        if (threads == 1 || loop.blocks.size() < 2) continue;
        // Each thread beyond the second takes the shared word and the count of finished blocks in turn.
        const auto others =
            static_cast<double>(std::min<std::size_t>(loop.blocks.size(), static_cast<std::size_t>(threads)));
        estimate.barriers += seconds_on(loop, threads, machine.pool.ticket) - alone + machine.pool.meeting +
                             (others - 2) * machine.pool.ticket;
    }
    if (machine.memory.one <= 0) return estimate;
    // A thread that moves data faster than it copies has a part of it in a cache.
    const double moved = std::min(static_cast<double>(bytes), launch.seconds * machine.memory.one);
    estimate.memory =
        std::max(0.0, moved / machine.memory.of(threads) - estimate.computing - estimate.barriers);
    if (threads == 1) estimate.memory = 0;
    return estimate;
}

LostTime lost_time(const RecordedLaunch& launch, int threads) {
    LostTime lost{.serial = seconds_outside_loops(launch) * (1 - 1.0 / threads)};
    for (const RecordedLoop& loop : launch.loops) {
        if (loop.blocks.size() > 1)
            add_lost(lost, loop, threads);
        else
            lost.serial += loop.seconds * (1 - 1.0 / threads);
    }
    return lost;
}

ThreadReport estimate_threads(const Plan& plan, const RecordedStep& step, const std::vector<int>& threads,
                              const PlannedMachine& machine) {
    check(step.launches.size() == plan.nodes().size(), "a step has a record of each planned node");
    ThreadReport report{.title = {}, .machine = machine, .estimates = {}, .unscaled = {}};
    double launches = 0;
    for (const RecordedLaunch& launch : step.launches) launches += launch.seconds;
    for (const int count : threads) {
        ThreadEstimate& all = report.estimates.emplace_back();
        all.threads = count;
        all.outside = std::max(0.0, step.seconds - launches);
        for (std::size_t i = 0; i < step.launches.size(); ++i) {
            const LaunchEstimate each =
                estimate_launch(step.launches[i], plan.nodes()[i].cost.bytes, count, machine);
            all.computing += each.computing;
            all.barriers += each.barriers;
            all.memory += each.memory;
        }
    }
    std::map<std::tuple<std::string_view, std::string_view, std::string>, UnscaledLaunches> kinds;
    for (std::size_t i = 0; i < step.launches.size(); ++i) {
        const PlannedNode& planned = plan.nodes()[i];
        const Node& node = plan.graph().node(planned.node);
        UnscaledLaunches& kind = kinds[{node.op->name, name_of(node.origin.stage), planned.kernel}];
        kind.op = node.op->name;
        kind.stage = name_of(node.origin.stage);
        kind.kernel = planned.kernel;
        ++kind.launches;
        kind.seconds += step.launches[i].seconds;
        kind.computing += estimate_launch(step.launches[i], 0, threads.back(), machine).computing;
        for (const RecordedLoop& loop : step.launches[i].loops)
            kind.blocks = std::max(kind.blocks, static_cast<std::int64_t>(loop.blocks.size()));
        const LostTime lost = lost_time(step.launches[i], threads.back());
        kind.lost.serial += lost.serial;
        kind.lost.few_blocks += lost.few_blocks;
        kind.lost.long_block += lost.long_block;
        kind.lost.waits += lost.waits;
    }
    for (auto& [key, kind] : kinds) report.unscaled.push_back(std::move(kind));
    std::ranges::sort(report.unscaled, std::greater<>(),
                      [](const UnscaledLaunches& each) { return each.lost.all(); });
    return report;
}

std::vector<int> thread_counts(int most) {
    std::vector<int> counts;
    for (int count = 1; count < most; count *= 2) counts.push_back(count);
    counts.push_back(most);
    return counts;
}

namespace {

/// Most lines of launches that do not scale.
constexpr std::size_t max_lines = 15;

std::string why(const UnscaledLaunches& launches, int threads) {
    switch (launches.lost.greatest()) {
        case Hindrance::none:
            return "";
        case Hindrance::serial:
            return "serial: one thread does it";
        case Hindrance::few_blocks:
            return fmt::format("few blocks: {} for {} threads", launches.blocks, threads);
        case Hindrance::long_block:
            return fmt::format("one long block of {}", launches.blocks);
        case Hindrance::waits:
            return fmt::format("blocks wait for one another: {}", count_text(launches.blocks, "block"));
    }
    throw InternalError("a hindrance outside of its enumeration");
}

std::string_view word_of(Hindrance hindrance) {
    static constexpr std::array<std::string_view, 5> names = {"none", "serial", "few blocks", "long block",
                                                              "waits"};
    return names.at(static_cast<std::size_t>(hindrance));
}

Table estimates_of(const ThreadReport& report) {
    Table table{{{"threads", "threads"},
                 {"ms", "step ms", decimals_of<2>},
                 {"", "speedup", decimals_of<2>},
                 {"computing_ms", "computing ms", decimals_of<2>},
                 {"efficiency", "efficient", percent},
                 {"memory_ms", "memory ms", decimals_of<2>},
                 {"barriers_ms", "barriers ms", decimals_of<2>},
                 {"between_ms", "between ms", decimals_of<2>},
                 {"planned_bytes", "planned", megabytes_text}}};
    for (const ThreadEstimate& each : report.estimates)
        table.add(each.threads, 1e3 * each.seconds(), report.estimates.front().seconds() / each.seconds(),
                  1e3 * each.computing, report.efficiency(each), 1e3 * each.memory, 1e3 * each.barriers,
                  1e3 * each.outside, each.planned_bytes);
    return table;
}

Table unscaled_of(const ThreadReport& report) {
    Table table{{"op", "pass", "kernel", "launches", "one_thread_ms", "computing_ms", "blocks", "why",
                 "serial_ms", "few_blocks_ms", "long_block_ms", "waits_ms"}};
    for (const UnscaledLaunches& each : report.unscaled)
        table.add(each.op, each.stage, each.kernel, each.launches, 1e3 * each.seconds, 1e3 * each.computing,
                  each.blocks, word_of(each.lost.greatest()), 1e3 * each.lost.serial,
                  1e3 * each.lost.few_blocks, 1e3 * each.lost.long_block, 1e3 * each.lost.waits);
    return table;
}

}  // namespace

std::string thread_table(const ThreadReport& report) {
    const int threads = report.estimates.back().threads;
    const double computing = report.estimates.back().computing;
    const auto& [pool, memory] = report.machine;
    std::string text = fmt::format(
        "{}\n\npredicted from the blocks of each launch as one thread ran them; a loop's beginning and end "
        "{:.2f} us on two threads, and {:.0f} ns more a further thread; one thread copies {:.1f} GB/s, all "
        "together {:.1f} at most\n\n",
        report.title, 1e6 * pool.meeting, 1e9 * pool.ticket, memory.one / 1e9, memory.all / 1e9);
    text += estimates_of(report).text();
    if (threads == 1) return text;
    text += fmt::format("\nwhat does not scale to {} threads, of {:.2f} ms computing:\n", threads,
                        1e3 * computing);
    Grid grid{{"operation", "pass", "launches", "1: ms", fmt::format("{}: ms", threads), "lost ms", "of it",
               "why", "kernel"}};
    for (const UnscaledLaunches& each : report.unscaled) {
        const double lost = each.lost.all();
        if (grid.rows.size() == max_lines || lost < 1e-3 * computing) break;
        grid.rows.push_back({each.op, each.stage, std::to_string(each.launches),
                             with_decimals(1e3 * each.seconds, 2), with_decimals(1e3 * each.computing, 3),
                             with_decimals(1e3 * lost, 3), percent(lost / computing), why(each, threads),
                             each.kernel});
    }
    return text + grid.text();
}

Fields fields_of(const ThreadReport& report) {
    const auto& [pool, memory] = report.machine;
    return {{"pool_us", 1e6 * pool.meeting},     {"ticket_ns", 1e9 * pool.ticket},
            {"copy_one_gbs", memory.one / 1e9},  {"copy_all_gbs", memory.all / 1e9},
            {"estimates", estimates_of(report)}, {"unscaled", unscaled_of(report)}};
}

}  // namespace mantissa
