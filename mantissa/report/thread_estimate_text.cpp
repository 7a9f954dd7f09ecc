#include <fmt/format.h>

#include "mantissa/base/count_text.h"
#include "mantissa/base/error.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/thread_estimate.h"

namespace mantissa::inline v0 {

namespace {

/// Lines of launches that do not scale, at most.
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
