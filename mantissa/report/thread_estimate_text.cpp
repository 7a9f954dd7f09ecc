#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "mantissa/base/error.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/thread_estimate.h"

namespace mantissa::inline v0 {

namespace {

/// Lines of launches that do not scale, at most.
constexpr std::size_t most_lines = 15;

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
            return fmt::format("blocks wait for one another: {} blocks", launches.blocks);
    }
    throw InternalError("a hindrance outside of its enumeration");
}

std::string_view word_of(Hindrance hindrance) {
    switch (hindrance) {
        case Hindrance::none:
            return "none";
        case Hindrance::serial:
            return "serial";
        case Hindrance::few_blocks:
            return "few blocks";
        case Hindrance::long_block:
            return "long block";
        case Hindrance::waits:
            return "waits";
    }
    throw InternalError("a hindrance outside of its enumeration");
}

std::string estimate_lines(const ThreadReport& report) {
    std::string text = fmt::format("{:>7} {:>10} {:>8} {:>13} {:>10} {:>10} {:>12} {:>11} {:>9}\n", "threads",
                                   "step ms", "speedup", "computing ms", "efficient", "memory ms",
                                   "barriers ms", "between ms", "planned");
    for (const ThreadEstimate& each : report.estimates)
        text += fmt::format("{:>7} {:>10.2f} {:>8.2f} {:>13.2f} {:>10} {:>10.2f} {:>12.2f} {:>11.2f} {:>9}\n",
                            each.threads, 1e3 * each.seconds(),
                            report.estimates.front().seconds() / each.seconds(), 1e3 * each.computing,
                            percent(report.efficiency(each)), 1e3 * each.memory, 1e3 * each.barriers,
                            1e3 * each.outside, fmt::format("{:.0f} MB", megabytes(each.planned_bytes)));
    return text;
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
    text += estimate_lines(report);
    if (threads == 1) return text;
    text += fmt::format("\nwhat does not scale to {} threads, of {:.2f} ms computing:\n", threads,
                        1e3 * computing);
    constexpr const char* row = "{:<24} {:<9} {:>8} {:>10} {:>10} {:>10} {:>7}  {:<40} {}\n";
    text += fmt::format(row, "operation", "pass", "launches", "1: ms", fmt::format("{}: ms", threads),
                        "lost ms", "of it", "why", "kernel");
    for (std::size_t i = 0; i < std::min(most_lines, report.unscaled.size()); ++i) {
        const UnscaledLaunches& each = report.unscaled[i];
        const double lost = each.lost.all();
        if (lost < 1e-3 * computing) break;
        text +=
            fmt::format(row, each.op, each.stage, each.launches, fmt::format("{:.2f}", 1e3 * each.seconds),
                        fmt::format("{:.3f}", 1e3 * each.computing), fmt::format("{:.3f}", 1e3 * lost),
                        percent(lost / computing), why(each, threads), each.kernel);
    }
    return text;
}

nlohmann::ordered_json thread_json(const ThreadReport& report) {
    nlohmann::ordered_json json = {
        {"pool_us", 1e6 * report.machine.pool.meeting},    {"ticket_ns", 1e9 * report.machine.pool.ticket},
        {"copy_one_gbs", report.machine.memory.one / 1e9}, {"copy_all_gbs", report.machine.memory.all / 1e9},
        {"estimates", nlohmann::ordered_json::array()},    {"unscaled", nlohmann::ordered_json::array()}};
    for (const ThreadEstimate& each : report.estimates)
        json["estimates"].push_back({{"threads", each.threads},
                                     {"ms", 1e3 * each.seconds()},
                                     {"computing_ms", 1e3 * each.computing},
                                     {"efficiency", report.efficiency(each)},
                                     {"memory_ms", 1e3 * each.memory},
                                     {"barriers_ms", 1e3 * each.barriers},
                                     {"between_ms", 1e3 * each.outside},
                                     {"planned_bytes", each.planned_bytes}});
    for (const UnscaledLaunches& each : report.unscaled)
        json["unscaled"].push_back({{"op", each.op},
                                    {"pass", each.stage},
                                    {"kernel", each.kernel},
                                    {"launches", each.launches},
                                    {"one_thread_ms", 1e3 * each.seconds},
                                    {"computing_ms", 1e3 * each.computing},
                                    {"blocks", each.blocks},
                                    {"why", word_of(each.lost.greatest())},
                                    {"serial_ms", 1e3 * each.lost.serial},
                                    {"few_blocks_ms", 1e3 * each.lost.few_blocks},
                                    {"long_block_ms", 1e3 * each.lost.long_block},
                                    {"waits_ms", 1e3 * each.lost.waits}});
    return json;
}

}  // namespace mantissa
