#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/unit/server/jobs/job_table_text.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using Kind = WorkerOutcome::Kind;

constexpr JobIntent kWaits{JobWish::run, JobPhase::waiting};
constexpr JobIntent kRuns{JobWish::run, JobPhase::running};
constexpr JobIntent kRests{JobWish::pause, JobPhase::resting};

/// Carries out what the table says, as a manager would, and complains about what must not be.
class Checker {
  public:
    explicit Checker(std::uint32_t seed)
        : random_(seed), slots_(1 + seed % 3), table_({slots_, std::chrono::seconds(seed % 40)}) {}

    void run(int events) {
        for (int restored = pick(4); restored > 0; --restored) {
            const auto id = fresh_id();
            const bool running = pick(2) == 0;
            owners_[output_of(id)] = id;
            const bool resume = !running && pick(2) == 0;
            if (resume) {
                resumable_.insert(id);
            }
            table_.restore({id, test::writes(output_of(id)), running, running && pick(3) == 0, resume});
        }
        carry_out();
        table_.start();
        for (int event = 0; event < events; ++event) {
            now_ += std::chrono::seconds(pick(20));
            happen();
            if (pick(4) != 0) {
                carry_out();
            }
        }
        table_.stop(now_);
        stopped_ = true;
        carry_out();
        while (!running_.empty()) {
            end_worker(*running_.begin());
            carry_out();
        }
        EXPECT_EQ(table_.running(), 0U);
        EXPECT_FALSE(table_.next_wakeup());
        for (const auto& [id, state] : states_) {
            EXPECT_TRUE(api::is_terminal(state) || state == api::JobState::queued || state == api::JobState::paused)
                << id;
            EXPECT_EQ(table_.intent(id).has_value(), !api::is_terminal(state)) << id;
        }
    }

  private:
    int pick(int bound) { return std::uniform_int_distribution(0, bound - 1)(random_); }
    std::string fresh_id() { return "j" + std::to_string(next_id_++); }
    static std::string output_of(const std::string& id) { return "/out/" + id; }
    std::string any_id() { return "j" + std::to_string(pick(next_id_ + 1)); }

    void happen() {
        switch (pick(11)) {
            case 0:
            case 1:
            case 2:
                return submit();
            case 3: {
                const auto id = any_id();
                const bool known = table_.intent(id).has_value();
                const auto last = pick(3) == 0 ? LastCheckpoint::skip : LastCheckpoint::write;
                EXPECT_EQ(table_.cancel(id, now_, last), known) << id;
                return;
            }
            case 8: {
                const auto id = any_id();
                const bool known = table_.intent(id).has_value();
                EXPECT_EQ(table_.pause(id, now_) != JobVerdict::not_found, known) << id;
                return;
            }
            case 9: {
                const auto id = any_id();
                const bool known = table_.intent(id).has_value();
                EXPECT_EQ(table_.resume(id) != JobVerdict::not_found, known) << id;
                return;
            }
            case 10: {
                const auto id = any_id();
                const bool runs = table_.intent(id) == kRuns;
                EXPECT_EQ(table_.tell(id, CheckpointCommand{}, "checkpoint requested") == JobVerdict::accepted, runs)
                    << id;
                table_.set_priority(any_id(), pick(5) - 2);
                return;
            }
            case 4:
                // About a job that may wait, have ended, or never have been.
                if (const auto id = any_id(); !running_.contains(id)) {
                    const auto before = table_.intent(id);
                    if (before == kWaits || before == kRests || !before) {
                        table_.on_ended(id, test::outcome(Kind::finished), now_);
                        EXPECT_EQ(table_.intent(id), before) << id;
                    }
                }
                return;
            default:
                if (!running_.empty()) {
                    end_worker(*std::next(running_.begin(), pick(static_cast<int>(running_.size()))));
                }
        }
    }

    void submit() {
        // One in three wants a folder that may be taken.
        const auto folder = pick(3) == 0 ? output_of(any_id()) : output_of("j" + std::to_string(next_id_));
        const auto verdict = table_.judge({false, {}, test::writes(folder)});
        const auto user = test::output_user(table_, folder);
        EXPECT_EQ(verdict, user ? JobVerdict::output_in_use : JobVerdict::created);
        if (user) {
            return;
        }
        const auto id = fresh_id();
        states_[id] = api::JobState::queued;
        owners_[folder] = id;
        table_.enqueue(id, test::writes(folder));
    }

    void end_worker(const std::string id) {
        static constexpr std::array kKinds{Kind::finished, Kind::cancelled, Kind::failed, Kind::died};
        const auto kind = kKinds.at(static_cast<std::size_t>(pick(4)));
        const bool young = !told_.contains(id) && !killed_.contains(id);
        if (young && !stopped_ && pick(5) == 0 && table_.intent(id) == kRuns) {
            table_.on_ended(id, test::outcome(Kind::not_started, "worker_not_started"), now_);
        } else {
            auto outcome = test::outcome(kind, pick(2) == 0 ? "internal" : "teacher", pick(2) == 0);
            outcome.reach = {static_cast<std::uint64_t>(pick(3)), static_cast<std::uint64_t>(pick(4))};
            table_.on_ended(id, outcome, now_);
        }
        running_.erase(id);
        told_.erase(id);
        killed_.erase(id);
    }

    void carry_out() {
        const auto actions = table_.poll(now_);
        for (const auto& action : actions) {
            if (const auto* start = std::get_if<StartWorkerAction>(&action)) {
                starting_.insert(start->id);
            }
        }
        for (const auto& action : actions) {
            std::visit([this](const auto& it) { check(it); }, action);
        }
        EXPECT_LE(running_.size(), slots_);
        EXPECT_EQ(running_.size(), table_.running());
        // No folder has two users, and every job that has not ended has its folder.
        for (const auto& [folder, id] : owners_) {
            const auto user = test::output_user(table_, folder);
            EXPECT_EQ(user.has_value(), table_.intent(id).has_value()) << folder;
            EXPECT_EQ(user.value_or(id), id) << folder;
        }
    }

    void check(const StartWorkerAction& it) {
        EXPECT_FALSE(stopped_) << "started after the stop";
        EXPECT_TRUE(running_.insert(it.id).second) << it.id << " runs already";
        starting_.erase(it.id);
        EXPECT_LE(running_.size(), slots_);
        // A worker goes on from a checkpoint exactly when the job was put back with one.
        EXPECT_EQ(it.resume, resumable_.contains(it.id)) << it.id;
        states_[it.id] = api::JobState::running;
    }
    void check(const AdoptWorkerAction& it) { EXPECT_TRUE(running_.contains(it.id)) << it.id << " has no worker"; }
    void check(const TellWorkerAction& it) {
        EXPECT_TRUE(running_.contains(it.id) || ended_meanwhile(it.id));
        const auto* cancel = std::get_if<CancelCommand>(&it.order);
        if (cancel == nullptr) {
            return;
        }
        const bool again = !cancel->checkpoint && skipping_.insert(it.id).second;
        EXPECT_TRUE(told_.insert(it.id).second || again || ended_meanwhile(it.id)) << it.id << " was told twice";
    }
    void check(const StoreNoteAction& it) { EXPECT_FALSE(is_terminal(it.id)) << it.id << " had ended"; }
    void check(const KillWorkerAction& it) {
        EXPECT_TRUE(running_.contains(it.id)) << it.id;
        EXPECT_TRUE(told_.contains(it.id)) << it.id << " was never asked";
        EXPECT_TRUE(killed_.insert(it.id).second) << it.id << " was killed twice";
    }
    void check(const StoreStateAction& it) {
        EXPECT_FALSE(is_terminal(it.id)) << it.id << " had ended";
        EXPECT_NE(it.state, api::JobState::running);
        states_[it.id] = it.state;
        if (it.state == api::JobState::pausing) {
            EXPECT_TRUE(running_.contains(it.id) || ended_meanwhile(it.id)) << it.id << " has no worker";
            return;
        }
        EXPECT_FALSE(running_.contains(it.id)) << it.id << " has a worker";
        told_.erase(it.id);
        skipping_.erase(it.id);
        if (it.resume) {
            EXPECT_FALSE(api::is_terminal(it.state));
            resumable_.insert(it.id);
        }
    }
    void check(const StoreCancelRequestAction& it) { EXPECT_FALSE(is_terminal(it.id)) << it.id << " had ended"; }
    void check(const WakeReadersAction&) { EXPECT_TRUE(stopped_); }

    bool is_terminal(const std::string& id) const {
        const auto found = states_.find(id);
        return found != states_.end() && api::is_terminal(found->second);
    }
    /// The worker ended before the order was carried out.
    bool ended_meanwhile(const std::string& id) const { return !table_.is_running(id) || starting_.contains(id); }

    std::mt19937 random_;
    std::uint32_t slots_;
    JobTable table_;
    JobTable::Time now_{};
    int next_id_ = 0;
    bool stopped_ = false;
    std::map<std::string, api::JobState> states_;
    std::map<std::string, std::string> owners_;  ///< newest job of each folder
    std::set<std::string> running_;
    std::set<std::string> starting_;  ///< that are to be started by the actions that are carried out
    std::set<std::string> told_;
    std::set<std::string> killed_;
    std::set<std::string> skipping_;  ///< told to end without a checkpoint
    std::set<std::string> resumable_;
};

TEST(JobTable, KeepsItsPromisesWhateverHappens) {
    for (std::uint32_t seed = 0; seed < 500; ++seed) {
        SCOPED_TRACE(seed);
        Checker checker(seed);
        checker.run(80);
        if (HasFailure()) {
            return;
        }
    }
}

}  // namespace
}  // namespace distilld
