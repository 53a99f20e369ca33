#include "tests/simulation/cluster_slurm.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/ascii.hpp"
#include "pipeline/async/condition.hpp"

namespace distilld::test {
namespace {

namespace asio = boost::asio;

constexpr Millis kClientPatience = 12'000;  ///< of Slurm's commands, without slurmctld
constexpr Millis kNodeTimeout = 45'000;     ///< SlurmdTimeout
constexpr Millis kKillWait = 30'000;        ///< KillWait

/// Of the names of the service's jobs.
constexpr std::string_view kNamePrefix = "distilld-";

bool has_ended(const std::string& state) {
    return state != "PENDING" && state != "RUNNING" && state != "COMPLETING";
}

std::string option_of(const Command& command, const std::string& name) {
    for (const std::string& argument : command.arguments) {
        if (argument.starts_with(name + "=")) {
            return argument.substr(name.size() + 1);
        }
    }
    return {};
}

}  // namespace

/// A command of Slurm at work.
struct SimulatedSlurm::Call {
    Command command;
    std::weak_ptr<Process> client;
    std::unique_ptr<Condition> answered;  ///< null: nobody waits
    std::optional<CommandAnswer> answer{};
};

SimulatedSlurm::SimulatedSlurm(Stage& stage, std::uint32_t nodes, Launch launch)
    : stage_(stage),
      launch_(std::move(launch)),
      nodes_(nodes),
      min_job_age_(60'000 + static_cast<Millis>(stage.draw(240'000))) {}

asio::awaitable<Result<CommandAnswer>> SimulatedSlurm::run(std::weak_ptr<Process> client, Command command) {
    const auto call = std::make_shared<Call>();
    call->client = client;
    call->answered = std::make_unique<Condition>(client.lock()->io().get_executor());
    call->command = std::move(command);
    struct Leave {
        std::shared_ptr<Call> call;
        ~Leave() { call->answered.reset(); }
    } const leave{call};
    if (client.lock()->alive()) {  // else it was killed within this event
        stage_.at(stage_.delay() + 5, [this, call, since = stage_.now()] { arrive(call, since); });
    }
    const auto until = std::chrono::steady_clock::now() + call->command.deadline;
    while (!call->answer && std::chrono::steady_clock::now() < until) {
        co_await call->answered->wait(until);
    }
    if (!call->answer) {
        co_return io_error(call->command.program.filename().string() + ": no answer in time");
    }
    co_return *call->answer;
}

void SimulatedSlurm::arrive(const std::shared_ptr<Call>& call, Millis since) {
    CommandAnswer answer;
    if (stage_.now() < down_until_ && stage_.now() < since + kClientPatience) {
        stage_.at(1000, [this, call, since] { arrive(call, since); });
        return;
    }
    if (stage_.now() < down_until_) {
        answer = {1, {}, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"};
    } else {
        answer = execute(call->command);
        if (lost_answers_ > 0) {
            --lost_answers_;
            stage_.tell("the answer to " + call->command.program.filename().string() + " is lost");
            return;
        }
    }
    const Millis slow = stage_.now() < slow_until_ ? static_cast<Millis>(stage_.draw(45'000)) : 0;
    stage_.at(stage_.delay() + slow, [call, answer = std::move(answer)] {
        if (const auto client = call->client.lock()) {
            client->post([call, answer] {
                call->answer = answer;
                if (call->answered) {
                    call->answered->notify();
                }
            });
        }
    });
}

CommandAnswer SimulatedSlurm::execute(const Command& command) {
    const std::string program = command.program.filename().string();
    if (program == "sbatch") {
        return submit(command);
    }
    if (program == "squeue") {
        return list();
    }
    if (program == "scontrol") {
        return show(std::stoull(command.arguments.back()));
    }
    if (program == "scancel") {
        const std::string name = option_of(command, "--name");
        for (const auto& [id, job] : jobs_) {
            if (name.empty() ? std::to_string(id) == command.arguments.back() : job.name == name) {
                cancel(id, "CANCELLED");
            }
        }
    }
    return {};
}

CommandAnswer SimulatedSlurm::submit(const Command& command) {
    const std::string word = "--token-file ";
    const auto begin = command.input.find(word) + word.size();
    Job job;
    job.name = option_of(command, "--job-name");
    job.token_file = command.input.substr(begin, command.input.find_first_of(" \n", begin) - begin);
    const std::uint64_t id = ++newest_;
    stage_.tell("Slurm job " + std::to_string(id) + " is " + job.name);
    jobs_[id] = std::move(job);
    stage_.at(static_cast<Millis>(stage_.draw(1500)), [this] { schedule(); });
    return {0, std::to_string(id) + "\n", {}};
}

CommandAnswer SimulatedSlurm::list() {
    CommandAnswer answer;
    for (auto& [id, job] : jobs_) {
        // A list may be older than a job that it should have.
        job.omitted = !job.omitted && !has_ended(job.state) && stage_.chance(40);
        if (!job.omitted) {
            const std::string node = job.node ? "n" + std::to_string(*job.node) : "";
            const std::string why = job.state == "PENDING" ? "Resources" : "None";
            answer.text += std::to_string(id) + "|" + job.state + "|" + node + "|" + why + "|" + job.name + "\n";
        }
    }
    return answer;
}

CommandAnswer SimulatedSlurm::show(std::uint64_t id) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) {
        return {1, {}, "slurm_load_jobs error: Invalid job id specified"};
    }
    return {0,
            "JobId=" + std::to_string(id) + " JobState=" + job->second.state +
                " ExitCode=" + std::to_string(job->second.exit_code) + ":0 \n",
            {}};
}

void SimulatedSlurm::cancel(std::uint64_t id, const std::string& state) {
    const Job& job = jobs_.at(id);
    if (job.state == "PENDING") {
        end(id, state);
    } else if (job.state == "RUNNING") {
        terminate(id, state, kKillWait);
    }
}

void SimulatedSlurm::terminate(std::uint64_t id, const std::string& state, Millis patience) {
    Job& job = jobs_.at(id);
    if (!job.ending.empty()) {
        return;
    }
    stage_.tell("Slurm ends " + job.name + ": " + state);
    job.ending = state;
    job.state = state == "CANCELLED" ? "COMPLETING" : job.state;
    if (!job.script) {
        return;  // launch() sees it
    }
    const std::uint32_t node = *job.node;
    const auto pass = [this, node, script = job.script](auto&& again, Millis delay, bool kill) -> void {
        stage_.at(delay, [this, node, script, again, kill] {
            if (is_cut(nodes_[node])) {
                again(again, 2000, kill);
            } else if (kill) {
                script->kill();
            } else {
                script->post([script] { script->terminate(); });
            }
        });
    };
    pass(pass, stage_.delay(), false);
    pass(pass, patience, true);
}

void SimulatedSlurm::schedule() {
    for (auto& [number, job] : jobs_) {
        if (job.state != "PENDING") {
            continue;
        }
        const auto idle = std::ranges::find_if(nodes_, [](const Node& node) { return !node.down && !node.job; });
        if (idle == nodes_.end()) {
            return;
        }
        idle->job = number;
        job.node = static_cast<std::uint32_t>(idle - nodes_.begin());
        job.state = "RUNNING";
        stage_.at(200 + static_cast<Millis>(stage_.draw(1500)), [this, id = number] { launch(id); });
    }
}

void SimulatedSlurm::launch(std::uint64_t id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || has_ended(found->second.state)) {
        return;
    }
    Job& job = found->second;
    if (is_cut(nodes_[*job.node])) {
        stage_.at(1000, [this, id] { launch(id); });
        return;
    }
    if (!job.ending.empty()) {
        end(id, job.ending);
        return;
    }
    job.script = launch_(job.name, job.token_file, *job.node, [this, id] { on_exit(id); });
    if (!job.script) {
        job.exit_code = 1;
        end(id, "FAILED");
    }
}

void SimulatedSlurm::on_exit(std::uint64_t id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || has_ended(found->second.state)) {
        return;
    }
    Job& job = found->second;
    if (is_cut(nodes_[*job.node]) || stage_.now() < down_until_) {
        stage_.at(1000, [this, id] { on_exit(id); });
        return;
    }
    job.exit_code = job.script->exited ? job.script->exit_code : 137;
    end(id, !job.ending.empty() ? job.ending : job.exit_code == 0 ? "COMPLETED" : "FAILED");
}

void SimulatedSlurm::end(std::uint64_t id, const std::string& state) {
    Job& job = jobs_.at(id);
    stage_.tell("Slurm job " + std::to_string(id) + " of " + job.name + " is " + state);
    job.state = state;
    if (job.node && nodes_[*job.node].job == id) {
        nodes_[*job.node].job.reset();
    }
    stage_.at(min_job_age_, [this, id] { forget(id); });
    stage_.at(100, [this] { schedule(); });
}

void SimulatedSlurm::forget(std::uint64_t id) {
    const auto& script = jobs_.at(id).script;
    if (script && script->alive()) {
        stage_.at(10'000, [this, id] { forget(id); });
    } else {
        jobs_.erase(id);
    }
}

void SimulatedSlurm::go_down(Millis length) {
    stage_.tell("slurmctld is down for " + std::to_string(length) + " ms");
    down_until_ = std::max(down_until_, stage_.now() + length);
}

void SimulatedSlurm::be_slow(Millis length) {
    stage_.tell("slurmctld is slow for " + std::to_string(length) + " ms");
    slow_until_ = std::max(slow_until_, stage_.now() + length);
}

void SimulatedSlurm::cut(std::uint32_t node, Millis length) {
    nodes_[node].cut_until = std::max(nodes_[node].cut_until, stage_.now() + length);
    if (length > kNodeTimeout) {
        lose_node(node, kNodeTimeout);
    }
    stage_.at(length + static_cast<Millis>(stage_.draw(20'000)), [this, node] { register_node(node); });
}

void SimulatedSlurm::crash(std::uint32_t node, Millis length) {
    stage_.tell("node " + std::to_string(node) + " crashes");
    cut(node, std::max(length, kNodeTimeout + 1));
    for (const auto& [id, job] : jobs_) {
        if (job.script && job.node == node) {
            stage_.disturb(job.script->name());
            job.script->kill();
        }
    }
}

void SimulatedSlurm::lose_node(std::uint32_t number, Millis seen) {
    stage_.at(seen, [this, number] {
        Node& node = nodes_[number];
        if (!is_cut(node)) {
            return;
        }
        node.down = true;
        if (node.job) {
            disturb(*node.job);
            end(*node.job, "NODE_FAIL");
        }
    });
}

/// slurmd ends what slurmctld has given up.
void SimulatedSlurm::register_node(std::uint32_t number) {
    Node& node = nodes_[number];
    if (is_cut(node)) {
        return;
    }
    for (const auto& [id, job] : jobs_) {
        if (job.script && job.node == number && has_ended(job.state)) {
            job.script->kill();
        }
    }
    node.down = false;
    schedule();
}

std::shared_ptr<ScriptProcess> SimulatedSlurm::running_script() {
    std::vector<std::shared_ptr<ScriptProcess>> scripts;
    for (const auto& [id, job] : jobs_) {
        if (job.script && job.script->alive()) {
            scripts.push_back(job.script);
        }
    }
    return scripts.empty() ? nullptr : scripts[stage_.draw(scripts.size())];
}

std::optional<std::uint32_t> SimulatedSlurm::node_of(const ScriptProcess& script) const {
    for (const auto& [id, job] : jobs_) {
        if (job.script.get() == &script) {
            return job.node;
        }
    }
    return std::nullopt;
}

void SimulatedSlurm::disturb(std::uint64_t id) {
    stage_.disturb(jobs_.at(id).name.substr(kNamePrefix.size()));
}

void SimulatedSlurm::preempt(std::uint32_t node) {
    if (const auto id = nodes_[node].job; id && jobs_.at(*id).state == "RUNNING") {
        disturb(*id);
        terminate(*id, stage_.chance(2) ? "PREEMPTED" : "TIMEOUT", 60'000);
    }
}

void SimulatedSlurm::cancel_outside(const std::string& name) {
    for (const auto& [id, job] : jobs_) {
        if (job.name == name && !has_ended(job.state) && job.ending.empty()) {
            cancelled_outside_.insert(name);
            disturb(id);
            cancel(id, "CANCELLED");
        }
    }
}

std::vector<std::string> SimulatedSlurm::unended() const {
    std::vector<std::string> names;
    for (const auto& [id, job] : jobs_) {
        if (!has_ended(job.state) || (job.script && job.script->alive())) {
            names.push_back(job.name + " (" + job.state + ")");
        }
    }
    return names;
}

}  // namespace distilld::test
