// kill -9 of a random rank at a random moment, in an exchange, a save or between: the others end, and the
// checkpoint that is found is whole and goes on to the bits of a run that nobody killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "mantissa/base/random.h"
#include "mantissa/train/checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/rank_training.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::RankRun;

constexpr int ended_by_a_lost_rank = 7;
constexpr int saved_nothing = 8;

/// The work of a rank, for whoever watches it from another process.
enum Doing : int { starting, stepping, saving };

/// Memory that processes share from a fork on.
struct Watched {
    volatile int doing[4];
    volatile int saves;
};

/// Trains and saves after every sixth step until something ends it: a save takes as long as some steps.
[[noreturn]] void train_until_killed(std::unique_ptr<Transport> transport, const fs::path& place,
                                     Watched& watched) {
    try {
        Ranks ranks(std::move(transport));
        const bool resumes = fs::exists(place);
        RankRun run({.ranks = ranks.size(), .resume = resumes ? place : fs::path()}, &ranks);
        const int rank = ranks.rank();
        for (;;) {
            watched.doing[rank] = stepping;
            run.step();
            if (run.trainer.steps_done() % 6 != 0) continue;
            watched.doing[rank] = saving;
            save_training(place, run.trainer);
            if (rank == 0) watched.saves = watched.saves + 1;
        }
    } catch (const LostRank&) {
        ::_exit(ended_by_a_lost_rank);
    } catch (const UserError&) {
        ::_exit(saved_nothing);
    } catch (...) {
        ::_exit(9);
    }
}

/// Several of them as processes of their own.
class TrainingRanks {
  public:
    /// `begin`: what a rank does before all else.
    TrainingRanks(
        int count, const fs::path& place, double seconds,
        const std::function<void(int rank)>& begin = [](int) {})
        : watched_(static_cast<Watched*>(
              ::mmap(nullptr, sizeof(Watched), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
        std::vector<std::unique_ptr<Transport>> transports = connected_ranks(count, seconds);
        for (std::size_t rank = 0; rank < transports.size(); ++rank) {
            const pid_t child = ::fork();
            if (child == 0) {
                std::unique_ptr<Transport> own = std::move(transports[rank]);
                transports.clear();  // or a rank that ends would seem to live on in this one
                begin(static_cast<int>(rank));
                train_until_killed(std::move(own), place, *watched_);
            }
            children_.push_back(child);
        }
    }
    ~TrainingRanks() {
        for (const pid_t child : children_)
            if (child > 0) {
                ::kill(child, SIGKILL);
                ::waitpid(child, nullptr, 0);
            }
        ::munmap(watched_, sizeof(Watched));
    }
    TrainingRanks(const TrainingRanks&) = delete;
    TrainingRanks& operator=(const TrainingRanks&) = delete;

    Doing doing(int rank) const { return static_cast<Doing>(watched_->doing[rank]); }
    int saves() const { return watched_->saves; }
    void send(int rank, int signal) { ::kill(children_[static_cast<std::size_t>(rank)], signal); }

    /// Waits until ranks have saved so often, or two minutes: a machine may be busy with other things.
    void wait_for_saves(int count) const {
        for (int i = 0; i < 120'000 && saves() < count; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_GE(saves(), count);
    }

    /// How a rank ended, which it must within so many seconds; -1: it did not.
    int end_of(int rank, double seconds) {
        pid_t& child = children_[static_cast<std::size_t>(rank)];
        for (int i = 0; i < static_cast<int>(seconds * 1000); ++i) {
            int status = 0;
            if (::waitpid(child, &status, WNOHANG) == child) {
                child = -1;
                return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return -1;
    }

  private:
    Watched* watched_;
    std::vector<pid_t> children_;
};

/// A run that nobody kills, as far as it is asked for.
class Undisturbed {
  public:
    explicit Undisturbed(int micro_batches)
        : micro_batches_(micro_batches), run_({.accumulate = micro_batches}, nullptr) {}

    /// The checkpoint at `place` is whole, what this run had after as many steps, and goes on as it does.
    void expect_goes_on(const fs::path& place) {
        EXPECT_EQ(load_checkpoint(place).warning, "");
        RankRun found({.accumulate = micro_batches_, .resume = place}, nullptr);
        while (run_.trainer.steps_done() < found.trainer.steps_done()) run_.step();
        ASSERT_EQ(run_.trainer.steps_done(), found.trainer.steps_done()) << "a later one was there before";
        // Copies of parameters are made before the next step.
        const float loss = found.step().loss;
        EXPECT_EQ(loss, run_.step().loss);
        EXPECT_TRUE(found.states() == run_.states()) << "after step " << run_.trainer.steps_done();
    }

  private:
    int micro_batches_;
    RankRun run_;
};

void kill_ranks_at_random_moments(int kills, int count) {
    const TemporaryDirectory directory;
    const fs::path place = directory / "run";
    const RandomStream random{.seed = 22};
    Undisturbed undisturbed(count);
    int in_save = 0, in_step = 0;
    for (int i = 0; i < kills; ++i) {
        TrainingRanks training(count, place, 20);
        training.wait_for_saves(1);
        const auto at = static_cast<std::uint64_t>(3 * i);
        const int victim = static_cast<int>(random.uniform(at) * static_cast<float>(count));
        std::this_thread::sleep_for(std::chrono::duration<float, std::milli>(150 * random.uniform(at + 1)));
        training.send(victim, SIGKILL);
        (training.doing(victim) == saving ? in_save : in_step)++;
        EXPECT_EQ(training.end_of(victim, 10), -SIGKILL);
        for (int rank = 0; rank < count; ++rank)
            if (rank != victim) {
                EXPECT_EQ(training.end_of(rank, 10), ended_by_a_lost_rank)
                    << "kill " << i << " of " << victim;
            }
        ASSERT_NO_FATAL_FAILURE(undisturbed.expect_goes_on(place)) << "kill " << i;
    }
    // Files that the killed ones left do not pile up.
    EXPECT_LE(std::distance(fs::directory_iterator(directory.path()), {}), 3);
    if (kills < 100) return;
    EXPECT_GT(in_save, kills / 20);
    EXPECT_GT(in_step, kills / 20);
}

TEST(RanksKill, TwoAtRandomMoments) { kill_ranks_at_random_moments(2, 2); }

TEST(RanksKillSlow, TwoHundredAtRandomMoments) {
    kill_ranks_at_random_moments(150, 2);
    kill_ranks_at_random_moments(50, 4);
}

TEST(RanksKill, OneThatStandsStillForLessThanTheTimeoutIsWaitedFor) {
    const TemporaryDirectory directory;
    TrainingRanks training(2, directory / "run", 5);
    training.wait_for_saves(1);
    training.send(1, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const int saves = training.saves();
    EXPECT_EQ(training.end_of(0, 0.01), -1) << "it waits";
    training.send(1, SIGCONT);
    training.wait_for_saves(saves + 3);
    training.send(1, SIGKILL);
    EXPECT_EQ(training.end_of(0, 10), ended_by_a_lost_rank);
    Undisturbed(2).expect_goes_on(directory / "run");
}

TEST(RanksKill, OneThatStandsStillForLongerEndsTheOthers) {
    const TemporaryDirectory directory;
    TrainingRanks training(3, directory / "run", 3);
    training.wait_for_saves(1);
    training.send(2, SIGSTOP);
    for (const int rank : {0, 1}) EXPECT_EQ(training.end_of(rank, 60), ended_by_a_lost_rank);
    Undisturbed(3).expect_goes_on(directory / "run");
}

TEST(RanksKill, ADiskThatIsFullOnOneHostSavesNothingAndSaysSoOnAll) {
    // The largest file stands for the room on a disk: enough for the first saves' place, not for a part.
    const TemporaryDirectory directory;
    {
        TrainingRanks training(2, directory / "run", 20);
        training.wait_for_saves(1);
        training.send(0, SIGKILL);
        training.send(1, SIGKILL);
    }
    TrainingRanks training(2, directory / "run", 20, [](int rank) {
        if (rank == 0) return;
        ::signal(SIGXFSZ, SIG_IGN);
        const ::rlimit limit{.rlim_cur = 20'000, .rlim_max = 20'000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    });
    for (const int rank : {0, 1}) EXPECT_EQ(training.end_of(rank, 20), saved_nothing) << rank;
    Undisturbed(2).expect_goes_on(directory / "run");
    for (const fs::directory_entry& entry : fs::directory_iterator(directory.path()))
        EXPECT_EQ(entry.path().filename().string().find(".tmp."), std::string::npos);
}

}  // namespace
}  // namespace mantissa
