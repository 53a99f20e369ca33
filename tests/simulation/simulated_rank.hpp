#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "pipeline/core/ranks/rank_watch.hpp"
#include "pipeline/core/ranks/sum_plan.hpp"
#include "tests/simulation/rank_world.hpp"

/// One rank of run_rank_world().
namespace distilld::test {

using Millis = std::int64_t;

constexpr Millis kHeartbeat = 2'000;
constexpr std::uint32_t kMaxSilentLooks = 7;
constexpr Millis kStoreTimeout = 2'000;
/// A connection ends when its link has dropped all packets for as long.
constexpr Millis kLinkPatience = 15'000;
constexpr Millis kLeavePatience = 10'000;
/// Promised: from a loss to the end of all ranks that can act.
constexpr Millis kNoticed = 30'000;
/// The supervisor kills what has not ended by itself.
constexpr Millis kGrace = 40'000;
constexpr Millis kHorizon = 3'600'000;
constexpr std::uint32_t kStepsPerCheckpoint = 3;

/// What one rank computes that trains on all groups.
float reference(const RankWorldOptions& options);

struct Store {
    std::map<std::uint32_t, std::string> beats;
    std::map<std::uint32_t, std::string> ends;
    std::optional<std::string> verdict;
};

struct Checkpoint {
    std::uint32_t step = 0;
    float weight = 1;
};

class World;

/// A worker process of one attempt.
class Rank : public std::enable_shared_from_this<Rank> {
  public:
    Rank(World& world, std::uint32_t number, std::uint32_t attempt, const Checkpoint& from);

    void start();
    void kill();
    void stop();
    void go_on();
    void receive(std::uint32_t from, float value);
    void on_broken(std::uint32_t peer);

    [[nodiscard]] bool alive() const { return alive_; }
    [[nodiscard]] bool stopped() const { return stopped_; }
    [[nodiscard]] bool finished() const { return finished_; }
    [[nodiscard]] std::uint32_t number() const { return number_; }
    [[nodiscard]] std::uint32_t attempt() const { return attempt_; }
    [[nodiscard]] float weight() const { return weight_; }
    [[nodiscard]] const std::optional<RankVerdict>& verdict() const { return verdict_; }

    /// Runs `work` after a delay unless the process has ended; while it is stopped, later.
    void later(Millis delay, std::function<void()> work);

  private:
    void train();
    void go_through_plan();
    void look_later();
    void look();
    void conclude(RankVerdict verdict, const std::string& how);
    void end(const std::string& how);
    void wait_for_others(Millis since);
    void exit();
    void finish_step(float total);

    World& world_;
    std::uint32_t number_;
    std::uint32_t attempt_;
    std::uint32_t step_;
    float weight_;
    RankWatch watch_;
    bool alive_ = true;
    bool stopped_ = false;
    bool finished_ = false;
    bool ended_ = false;
    std::vector<std::function<void()>> postponed_;
    std::optional<RankVerdict> verdict_;
    std::uint64_t beats_ = 0;
    // The step under way.
    SumPlan plan_;
    std::map<SumNode, float> held_;
    std::size_t at_ = 0;
    bool exchanging_ = false;
    std::map<std::uint32_t, std::deque<float>> arrived_;
    std::set<std::uint32_t> broken_;  ///< peers whose connection has ended
};

}  // namespace distilld::test
