#include "server/supervisor/slurm/slurm_queue.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "server/support/log.hpp"

namespace distilld::slurm {
namespace {

namespace asio = boost::asio;

constexpr std::string_view kNamePrefix = "distilld-";
/// Lists without a job before scontrol is asked: one may have been asked for before the job was submitted.
constexpr int kMaxMissing = 2;

/// Empty: it does not wait, or not for anything that Slurm knows.
std::string wait_of(const QueueEntry& entry) {
    const bool waits = entry.state == "PENDING" && entry.why != "None" && !entry.why.empty();
    return waits ? "in Slurm's queue as job " + std::to_string(entry.id) + ": " + entry.why : std::string();
}

}  // namespace

std::string job_name(const JobAttempt& attempt) {
    return std::string(kNamePrefix) + attempt.job + "-" + std::to_string(attempt.number);
}

std::optional<std::string> job_of(std::string_view name) {
    const std::size_t end = name.rfind('-');
    if (!name.starts_with(kNamePrefix) || end <= kNamePrefix.size()) {
        return std::nullopt;
    }
    return std::string(name.substr(kNamePrefix.size(), end - kNamePrefix.size()));
}

Queue::Queue(const Commands& commands, asio::any_io_executor executor, std::chrono::milliseconds interval)
    : commands_(commands),
      jobs_(executor, interval, [this] { return ask_queue(); }),
      nodes_(executor, interval, [this] { return commands_.nodes(); }) {}

asio::awaitable<Result<std::vector<QueueEntry>>> Queue::ask_queue() {
    auto entries = co_await commands_.queue();
    if (!entries && !std::exchange(silent_, true)) {
        log::warn("slurm", entries.error().message + " (jobs go on; asked again until it answers)");
    } else if (entries && std::exchange(silent_, false)) {
        log::info("slurm", "squeue answers again");
    }
    co_return entries;
}

asio::awaitable<JobEnd> Queue::ended(std::uint64_t id, std::string log, PlaceWait waits) {
    std::uint64_t number = jobs_.number();
    std::string told;
    for (int missing = 0;;) {
        const auto answer = co_await jobs_.after(number);
        number = answer->number;
        if (!answer->value) {
            continue;
        }
        const auto entry = std::ranges::find(*answer->value, id, &QueueEntry::id);
        const bool listed = entry != answer->value->end();
        missing = listed ? 0 : missing + 1;
        const std::string why = listed ? wait_of(*entry) : told;
        if (waits && std::exchange(told, why) != why) {
            waits(why);
        }
        if (listed ? !is_end(entry->state) : missing < kMaxMissing) {
            continue;
        }
        auto record = co_await commands_.record(id);
        if (record && *record && !is_end((*record)->state)) {
            missing = 0;
        } else if (record || listed) {
            const bool known = record && *record;
            co_return end_of(id, known || !listed ? *record : JobRecord{entry->state}, log);
        }
    }
}

asio::awaitable<Result<std::vector<Node>>> Queue::nodes(std::vector<std::string> running) {
    const auto machines = co_await nodes_.fresh();
    if (!machines->value) {
        co_return machines->value.error();
    }
    const auto jobs = co_await jobs_.fresh();
    if (!jobs->value) {
        co_return jobs->value.error();
    }
    std::vector<Node> nodes = *machines->value;
    std::map<std::string, Node*, std::less<>> by_name;
    for (Node& node : nodes) {
        by_name.emplace(node.name, &node);
    }
    for (const QueueEntry& entry : *jobs->value) {
        const auto job = job_of(entry.name);
        if (!job || is_end(entry.state) || std::ranges::find(running, *job) == running.end()) {
            continue;
        }
        for (const std::string& host : read_host_list(entry.nodes)) {
            const auto found = by_name.find(host);
            if (found != by_name.end()) {
                found->second->jobs.push_back(*job);
            }
        }
    }
    co_return nodes;
}

}  // namespace distilld::slurm
