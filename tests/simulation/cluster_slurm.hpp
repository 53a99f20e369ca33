#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/supervisor/command.hpp"
#include "tests/simulation/cluster_stage.hpp"

namespace distilld::test {

/// What a node runs for a Slurm job: `distilld attempt`.
class ScriptProcess : public Process {
  public:
    using Process::Process;
    /// SIGTERM.
    virtual void terminate() = 0;
    bool exited = false;  ///< by itself
    int exit_code = 0;
};

/// slurmctld with its slurmds: a queue, a job at a time on each node, a memory of ended jobs that does not last.
class SimulatedSlurm {
  public:
    /// Starts what the script says on the node; null: it ends at once with code 1. `on_exit` is for its end, by itself
    /// or not.
    using Launch = std::function<std::shared_ptr<ScriptProcess>(const std::string& name, const std::string& token_file,
                                                                std::uint32_t node, std::function<void()> on_exit)>;

    SimulatedSlurm(Stage& stage, std::uint32_t nodes, Launch launch);

    /// As run_command() for a command of Slurm that `client` runs.
    boost::asio::awaitable<Result<CommandAnswer>> run(std::weak_ptr<Process> client, Command command);

    // --- faults ---
    void go_down(Millis length);
    void be_slow(Millis length);
    void lose_answers(std::uint32_t number) { lost_answers_ = number; }
    /// The node is not reached by slurmctld. If that lasts, its jobs end with NODE_FAIL, and what runs there runs on.
    void cut(std::uint32_t node, Millis length);
    /// All of it ends at once.
    void crash(std::uint32_t node, Millis length);
    /// One of the running jobs, drawn.
    [[nodiscard]] std::shared_ptr<ScriptProcess> running_script();
    [[nodiscard]] std::optional<std::uint32_t> node_of(const ScriptProcess& script) const;
    /// SIGTERM with a minute's notice, then SIGKILL.
    void preempt(std::uint32_t node);
    /// By hand.
    void cancel_outside(const std::string& name);

    // --- at the end ---
    [[nodiscard]] std::vector<std::string> unended() const;
    /// Names of the jobs that somebody has ended with scancel by hand.
    [[nodiscard]] const std::set<std::string>& cancelled_outside() const { return cancelled_outside_; }

  private:
    struct Job {
        std::string name;
        std::string token_file;
        std::string state = "PENDING";
        std::string ending;  ///< the state that it will have
        std::optional<std::uint32_t> node;
        std::shared_ptr<ScriptProcess> script;
        int exit_code = 0;
        bool omitted = false;  ///< from a list
    };
    struct Node {
        Millis cut_until = 0;
        bool down = false;
        std::optional<std::uint64_t> job;
    };
    struct Call;

    void arrive(const std::shared_ptr<Call>& call, Millis since);
    CommandAnswer execute(const Command& command);
    CommandAnswer submit(const Command& command);
    CommandAnswer list();
    CommandAnswer show(std::uint64_t id);
    void cancel(std::uint64_t id, const std::string& state);
    void schedule();
    void launch(std::uint64_t id);
    void terminate(std::uint64_t id, const std::string& state, Millis patience);
    void on_exit(std::uint64_t id);
    void end(std::uint64_t id, const std::string& state);
    void forget(std::uint64_t id);
    void disturb(std::uint64_t id);
    [[nodiscard]] bool is_cut(const Node& node) const { return stage_.now() < node.cut_until; }
    void lose_node(std::uint32_t number, Millis seen);
    void register_node(std::uint32_t number);

    Stage& stage_;
    Launch launch_;
    std::vector<Node> nodes_;
    std::map<std::uint64_t, Job> jobs_;
    std::uint64_t newest_ = 0;
    Millis down_until_ = 0;
    Millis slow_until_ = 0;
    std::uint32_t lost_answers_ = 0;
    Millis min_job_age_;
    std::set<std::string> cancelled_outside_;
};

}  // namespace distilld::test
