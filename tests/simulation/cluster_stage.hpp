#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "tests/simulation/cluster_world.hpp"
#include "tests/simulation/virtual_clock.hpp"

/// What all parts of run_cluster() stand on: time, chance, processes.
namespace distilld::test {

using Millis = std::int64_t;

/// Thrown through the code of a process that is killed at work.
struct Killed {};

class Process;

class Stage {
  public:
    explicit Stage(const ClusterOptions& options) : options_(options), random_(options.seed) {}

    void at(Millis delay, std::function<void()> work) { events_.push({now() + delay, order_++, std::move(work)}); }
    [[nodiscard]] Millis now() const;
    [[nodiscard]] std::uint64_t draw(std::uint64_t below) { return random_.below(below); }
    [[nodiscard]] bool chance(std::uint64_t one_in) { return draw(one_in) == 0; }
    /// Of a packet; sometimes long.
    [[nodiscard]] Millis delay() { return 1 + static_cast<Millis>(draw(chance(10) ? 400 : 12)); }
    [[nodiscard]] const ClusterOptions& options() const { return options_; }
    [[nodiscard]] bool has(ClusterOptions::Defect defect) const { return options_.defect == defect; }
    VirtualClock& clock() { return clock_; }

    void tell(const std::string& what) const;
    void violate(const std::string& what);

    /// Something has happened to what runs under this name, JOB-ATTEMPT: it may be replaced.
    void disturb(const std::string& name) { disturbed_.insert(name); }
    [[nodiscard]] bool is_disturbed(const std::string& name) const { return disturbed_.contains(name); }

    void add(std::shared_ptr<Process> process) { processes_.push_back(std::move(process)); }
    /// Goes to the next event or timer. False: nothing is left to happen.
    bool step();
    /// All processes end.
    void clear();
    [[nodiscard]] std::size_t living() const { return processes_.size(); }

    ClusterResult result;

  private:
    struct Event {
        Millis at;
        std::uint64_t order;
        std::function<void()> work;
        bool operator<(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
    };
    void settle();

    ClusterOptions options_;
    SplitMix64 random_;
    VirtualClock clock_;
    std::uint64_t order_ = 0;
    std::priority_queue<Event> events_;
    std::vector<std::shared_ptr<Process>> processes_;
    std::set<std::string> disturbed_;
};

/// A process with an io_context of its own. A stopped one does nothing, and finds later what has come meanwhile.
class Process : public std::enable_shared_from_this<Process> {
  public:
    Process(Stage& stage, std::string name) : stage_(stage), name_(std::move(name)) {}
    virtual ~Process() = default;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    [[nodiscard]] virtual boost::asio::io_context& io() = 0;
    /// Runs `work` there, unless it has ended.
    void post(std::function<void()> work);
    void later(Millis delay, std::function<void()> work);
    /// SIGKILL. Its memory goes when nothing runs in it.
    void kill();
    void stop();
    void go_on();
    [[nodiscard]] bool alive() const { return alive_; }
    [[nodiscard]] bool stopped() const { return stopped_; }
    [[nodiscard]] const std::string& name() const { return name_; }

    /// For Stage.
    void run_ready();
    [[nodiscard]] int timers() const { return timers_; }
    bool touched = false;

  protected:
    /// The io_context is there.
    void begin();
    virtual void on_kill() {}
    Stage& stage_;

  private:
    std::string name_;
    int timers_ = -1;
    bool alive_ = true;
    bool stopped_ = false;
};

}  // namespace distilld::test
