#include "mantissa/report/rank_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <optional>

#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/ranks/exchange.h"
#include "mantissa/ranks/shard.h"
#include "mantissa/report/quantities.h"
#include "mantissa/report/report.h"
#include "mantissa/report/step_estimate.h"

namespace mantissa::inline v0 {

namespace {

/// The exchange that a node starts.
struct Sent {
    enum class What { sum, sum_of_parts, gather };
    What what = What::gather;
    std::int64_t bytes = 0;   ///< of the tensors, whole
    std::int64_t pieces = 0;  ///< number of pieces
    double terms = 1;         ///< bytes of a term on the wire, over a number's
    bool is_awaited = false;  ///< by the node itself
};

std::int64_t bytes_of(std::span<const Type> types) {
    std::int64_t bytes = 0;
    for (const Type& type : types) bytes += type.bytes();
    return bytes;
}

/// Bytes of each rank's part of gathered tensors.
std::int64_t part_bytes(std::span<const Type> wholes, std::int64_t ranks) {
    std::int64_t bytes = 0;
    for (const Type& type : wholes)
        bytes +=
            shard_elements(type.shape.elements(), ranks) * static_cast<std::int64_t>(size_of(type.dtype));
    return bytes;
}

std::optional<Sent> sent_by(const Node& node) {
    const std::string_view op = node.op->name;
    // Terms in BF16 are half as long; sums are unchanged.
    const double terms = node.attributes.has("wire") ? 0.5 : 1;
    if (op == "all_reduce_start") {
        const std::int64_t bytes = bytes_of(node.outputs);
        return Sent{.what = Sent::What::sum,
                    .bytes = bytes,
                    .pieces = ceil_div(bytes, Exchange::piece_bytes),
                    .terms = terms};
    }
    if (op == "reduce_scatter_start" || op == "all_gather_start") {
        const std::int64_t ranks = node.attributes.integer("ranks");
        return Sent{.what = op == "all_gather_start" ? Sent::What::gather : Sent::What::sum_of_parts,
                    .bytes = bytes_of(node.outputs),
                    .pieces = ceil_div(part_bytes(node.outputs, ranks), Exchange::piece_bytes / ranks),
                    .terms = terms};
    }
    if (op == "all_gather_rows_start") {
        const std::int64_t bytes = bytes_of(node.outputs);
        return Sent{.bytes = bytes, .pieces = ceil_div(bytes, Exchange::piece_bytes)};
    }
    if (op == "norm_of_parts") {
        std::int64_t elements = 0;
        for (std::int64_t of : node.attributes.list("elements")) elements += of;
        const auto size = static_cast<std::int64_t>(sizeof(double));
        return Sent{.bytes = elements / shard_block * size, .pieces = 1, .is_awaited = true};
    }
    return std::nullopt;
}

/// Seconds of a piece in Exchange (ranks/exchange.h).
struct PieceSeconds {
    double stage = 0, put_back = 0;  ///< of the thread, before the transfer and at the end
    double terms = 0;                ///< of the link
    double add_up = 0, sums = 0;     ///< of the thread; of the link, if sums travel, too
};

PieceSeconds piece_seconds(const Sent& sent, double ranks, const RankLink& link) {
    const double bytes = static_cast<double>(sent.bytes) / static_cast<double>(sent.pieces);
    const double way = bytes * (ranks - 1) / ranks / link.bytes_per_second;
    // Copied data is read and written; added data is read, and each rank's part of it written.
    const double copy = link.local_bytes_per_second > 0 ? 2 * bytes / link.local_bytes_per_second : 0;
    const double add = copy * (1 + 1 / ranks) / 2;
    switch (sent.what) {
        case Sent::What::sum:
            return {.stage = copy, .put_back = copy, .terms = sent.terms * way, .add_up = add, .sums = way};
        case Sent::What::sum_of_parts:
            return {.stage = copy, .put_back = add + copy / ranks, .terms = sent.terms * way};
        case Sent::What::gather:
            return {.stage = copy / ranks, .put_back = copy * (ranks - 1) / ranks, .terms = way};
    }
    throw InternalError("a sum or a gather");
}

/// Exchange beside a step, by its own rules: its thread does one thing at a time, the link carries one piece
/// after another, and latency overlaps for several pieces.
class Traffic {
  public:
    explicit Traffic(const RankLink& link) : link_(link) {}

    void send(std::int64_t id, Sent sent, double ranks, double time) {
        if (!link_.in_pieces) sent.pieces = std::min<std::int64_t>(sent.pieces, 1);
        while (!travelling_.empty() && arrival_of_oldest() <= time) go_on();
        if (under_way_.empty()) since_ = std::max(now_, time);
        now_ = std::max(now_, time);
        if (sent.pieces == 0) {
            done_[id] = now_;
            return;
        }
        const bool sums = sent.what == Sent::What::sum;
        slow_down(sent, ranks, time);
        under_way_.push_back({.id = id,
                              .seconds = piece_seconds(sent, ranks, link_),
                              .left = sent.pieces,
                              .unfinished = sent.pieces,
                              .unsent = sums ? sent.pieces : 0});
        while (start_next()) {
        }
    }

    /// The end of launches from `begin` on that take `seconds` without exchanges.
    double end_of_launches(double begin, double seconds) const {
        const double slowed = std::max(0.0, slowed_until_ - begin), done_in_it = slowed * (1 - lost_share_);
        return seconds < done_in_it ? begin + seconds / (1 - lost_share_)
                                    : begin + slowed + seconds - done_in_it;
    }

    /// The time when that exchange is done.
    double done(std::int64_t id) {
        while (!done_.contains(id)) go_on();
        const double time = done_.at(id);
        done_.erase(id);
        return time;
    }

    /// Seconds in which a finished exchange was under way.
    double travelled() const { return travelled_; }

  private:
    struct Work {
        std::int64_t id = 0;
        PieceSeconds seconds;
        std::int64_t left = 0, unfinished = 0, unsent = 0;  // pieces
    };
    struct Piece {
        Work* work = nullptr;
        bool has_sums = false;
        double arrival = 0;
    };

    /// During an exchange, launches lose its core time.
    void slow_down(const Sent& sent, double ranks, double time) {
        if (link_.threads == 0) return;
        const PieceSeconds piece = piece_seconds(sent, ranks, link_);
        const double way = piece.terms + piece.sums;
        const double core = piece.stage + piece.add_up + piece.put_back +
                            2 * way * link_.bytes_per_second * link_.core_seconds_per_byte;
        lost_share_ = std::min(0.9, core / way / link_.threads);
        slowed_until_ = std::max(slowed_until_, time) + static_cast<double>(sent.pieces) * way;
    }

    double arrival_of_oldest() const { return std::max(now_, travelling_.front().arrival); }

    void put_on_the_link(Piece piece, double seconds) {
        link_is_free_ = std::max(link_is_free_, now_) + seconds;
        piece.arrival = link_is_free_ + link_.latency;
        travelling_.push_back(piece);
    }

    bool start_next() {
        if (std::ssize(travelling_) >= (link_.in_pieces ? Exchange::pieces_under_way : 1)) return false;
        for (Work& work : under_way_) {
            if (work.left > 0) {
                --work.left;
                now_ += work.seconds.stage;
                put_on_the_link({.work = &work}, work.seconds.terms);
                return true;
            }
            if (work.unsent > 0) return false;
        }
        return false;
    }

    /// Completes the oldest piece.
    void go_on() {
        now_ = arrival_of_oldest();
        Piece piece = travelling_.front();
        travelling_.pop_front();
        Work& work = *piece.work;
        if (work.unsent > 0 && !piece.has_sums) {
            now_ += work.seconds.add_up;
            --work.unsent;
            piece.has_sums = true;
            put_on_the_link(piece, work.seconds.sums);
        } else {
            now_ += work.seconds.put_back;
            if (--work.unfinished == 0) {
                done_[work.id] = now_;
                travelled_ += now_ - since_;
                since_ = now_;
                under_way_.pop_front();
            }
        }
        while (start_next()) {
        }
    }

    const RankLink link_;
    double now_ = 0, link_is_free_ = 0;  // the thread's time; end of the link's accepted transfers
    double since_ = 0, travelled_ = 0;
    double slowed_until_ = 0, lost_share_ = 0;  // of launches, during exchanges
    std::deque<Work> under_way_;
    std::deque<Piece> travelling_;
    std::map<std::int64_t, double> done_;  // until queried
};

bool awaits(const Node& node) {
    return node.op->name == "all_reduce_wait" || node.op->name == "reduce_scatter_wait" ||
           node.op->name == "all_gather_wait";
}

}  // namespace

RankEstimate estimate_step(const Plan& step, std::span<const double> node_seconds, double before,
                           const RankLink& link) {
    check(node_seconds.size() == step.nodes().size(), "each planned node takes its time");
    RankEstimate estimate;
    double now = before;
    Traffic traffic(link);
    const auto wait_for = [&](std::int64_t sum) {
        const double arrival = traffic.done(sum);
        estimate.waiting += std::max(0.0, arrival - now);
        now = std::max(now, arrival);
    };
    constexpr std::int64_t awaited = -1;
    for (std::size_t i = 0; i < node_seconds.size(); ++i) {
        const Node& node = step.graph().node(step.nodes()[i].node);
        if (awaits(node)) wait_for(node.attributes.integer("sum"));
        now = traffic.end_of_launches(now, node_seconds[i]);
        const std::optional<Sent> sent = sent_by(node);
        if (!sent) continue;
        const std::int64_t sum = sent->is_awaited ? awaited : node.attributes.integer("sum");
        traffic.send(sum, *sent, static_cast<double>(node.attributes.integer("ranks")), now);
        if (sent->is_awaited) wait_for(awaited);
    }
    estimate.travelling = traffic.travelled();
    estimate.seconds = now;
    return estimate;
}

std::vector<double> estimated_node_seconds(const Plan& plan, const Peaks& peaks, const Target& target) {
    constexpr double share = 0.5;
    std::vector<double> seconds;
    for (const PlannedNode& planned : plan.nodes()) {
        const bool is_exchange =
            sent_by(plan.graph().node(planned.node)).has_value() || awaits(plan.graph().node(planned.node));
        const double arithmetic =
            static_cast<double>(planned.cost.flops) / unit_peak(planned.arithmetic, peaks, target);
        const double memory = peaks.copy > 0 ? static_cast<double>(planned.cost.bytes) / peaks.copy : 0;
        seconds.push_back(is_exchange ? 0 : std::max(arithmetic, memory) / share);
    }
    return seconds;
}

std::string rank_table(const std::vector<RankOption>& options, const std::string& unit) {
    Grid grid{{"", "step ms", "travels ms", "waits ms", "hidden", unit + "/s"}};
    for (const auto& [what, estimate, units_per_second] : options)
        grid.rows.push_back(
            {what, with_decimals(1e3 * estimate.seconds, 1), with_decimals(1e3 * estimate.travelling, 1),
             with_decimals(1e3 * estimate.waiting, 1), fmt::format("{:.0f} %", 100 * estimate.hidden()),
             with_decimals(units_per_second, 0)});
    if (options.size() < 2) return grid.text();
    // The first of several options with equal rates is the best.
    const auto shown = [](const RankOption& option) { return std::round(option.units_per_second); };
    const auto [least, most] = std::ranges::minmax(options, {}, shown);
    return fmt::format("{}{}\n", grid.text(),
                       shown(least) == shown(most)
                           ? "all are as good"
                           : "best: " + std::ranges::max_element(options, {}, shown)->what);
}

}  // namespace mantissa
