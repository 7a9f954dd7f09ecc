#include "cli/train_ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/print_error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/thread_pool.h"
#include "mantissa/ranks/launched.h"
#include "mantissa/train/agreement.h"

namespace mantissa::cli {

namespace {

/// Silences other ranks, which would repeat the first's output.
void silence_standard_output() {
    std::fflush(stdout);
    if (const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nowhere >= 0) {
        ::dup2(nowhere, STDOUT_FILENO);
        ::close(nowhere);
    }
}

}  // namespace

TrainRanks::TrainRanks(double seconds) {
    const std::optional<Launched> found = launched();
    if (!found) return;
    started_by_ = found->by;
    ranks_ = std::make_unique<Ranks>(connect(*found, seconds));
    if (!is_first()) silence_standard_output();
}

int TrainRanks::share_cores(int asked) {
    if (!ranks_) return asked;
    const int threads = mantissa::share_cores(*ranks_, asked);
    std::set<std::string> hosts;
    for (int rank = 0; rank < size(); ++rank) hosts.insert(ranks_->host_of(rank));
    shares_ = fmt::format("{} on {}, started by {}, {} each", count_text(size(), "rank"),
                          count_text(hosts.size(), "host"), started_by_,
                          count_text(threads == 0 ? default_thread_count() : threads, "thread"));
    return threads;
}

void TrainRanks::end_all(const std::string& what) {
    // The first rank that prints ends the others, so that few lines appear.
    std::this_thread::sleep_for(std::chrono::milliseconds(200) * std::min(ranks_->rank(), 10));
    say("{}: {}", ranks_->name_of(ranks_->rank()), what);
    std::fflush(stdout);
    // MPICH's mpirun drops pending output when ranks end.
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ranks_->abort();
    std::_Exit(1);
}

void TrainRanks::run(const std::function<void()>& body) {
    if (!ranks_) {
        body();
        return;
    }
    try {
        body();
    } catch (const Interrupted&) {
        const bool speaks = is_first();
        ranks_.reset();  // ends with the others: an error that leaves this scope would abort them
        if (speaks) throw;
    } catch (const AgreedError& error) {
        if (is_first()) say("{}", error.what());
        ranks_.reset();
        throw AlreadySaid(1);
    } catch (const std::exception& error) {
        end_all(error.what());
    }
}

int TrainRanks::first_of(int mine) {
    if (!ranks_) return mine;
    for (const std::string& each : ranks_->gather(std::to_string(mine)))
        if (const int given = std::atoi(each.c_str()); given != 0) return given;
    return 0;
}

std::string TrainRanks::first_of(const std::string& mine) {
    if (!ranks_) return mine;
    const std::vector<std::string> all = ranks_->gather(mine);
    for (int rank = 0; rank < size(); ++rank)
        if (const std::string& given = all[rank]; !given.empty())
            return fmt::format("{}: {}", ranks_->name_of(rank), given);
    return "";
}

void leave_out_histograms(TrainOptions& options, const TrainRanks& ranks) {
    if (!ranks.get() || options.states == "whole" || options.views.tensorboard.empty() ||
        options.views.histogram_every == 0)
        return;
    const std::string why = "a rank has parts of gradients, and a histogram is of all; give --states whole";
    if (options.given.contains("--histogram-every")) throw UserError("--histogram-every: " + why);
    if (ranks.is_first()) say("no histograms of gradients: {}", why);
    options.views.histogram_every = 0;
}

void leave_to_the_first(TrainOptions& options) {
    options.log.clear();
    options.run.json.clear();
    options.run.dump.clear();
    options.views = {};
    options.sample_every = 0;
    options.profile = false;
    options.run.quiet = true;
}

}  // namespace mantissa::cli
