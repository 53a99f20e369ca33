#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/cli/jobs/connection_options.hpp"
#include "server/jobs/job_verbs.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// Options of `distilld jobs`.
struct JobsCommand {
    enum class Action { submit, list, get, watch, ask, set, remove, checkpoints, metrics, logs, download };
    Action action = Action::list;
    std::string subject;  ///< spec file (submit); otherwise a job: id, prefix of one, or name
    ConnectionOptions connection;
    bool json = false;
    bool wide = false;  ///< list: more columns

    bool dry_run = false;  ///< submit: check the spec and show the job's estimate

    std::uint32_t limit = 20;           ///< list
    std::string state;                  ///< list; empty = any
    std::string name;                   ///< list; empty = any
    std::vector<std::string> metadata;  ///< list, set: NAME=TEXT each

    std::optional<std::int32_t> priority;         ///< submit, set
    std::optional<std::uint32_t> max_concurrent;  ///< set
    const JobVerb* verb = nullptr;                ///< ask
    bool verb_option = true;                      ///< ask

    std::string names;               ///< metrics: separated by commas; empty = all
    std::uint64_t after_step = 0;    ///< metrics, if `from_step` is set
    bool from_step = false;          ///< metrics: only those after after_step
    std::uint32_t max_points = 500;  ///< metrics

    std::uint32_t tail = 1000;  ///< logs: lines
    bool follow = false;        ///< logs: continue until the job has ended

    std::string to;   ///< download: folder; empty = named by the job's id
    std::string tar;  ///< download: file instead of a folder; empty = none
};

/// The options of every command that connects to a service.
void add_connection_options(CLI::App& command, ConnectionOptions& options);

/// The options of `nodes`.
void add_nodes_options(CLI::App& nodes, ConnectionOptions& connection, bool& json);

/// The subcommands of `jobs`. The verbs, each of them a subcommand, must outlive the command.
void add_jobs_options(CLI::App& jobs, JobsCommand& command, std::span<const JobVerb> verbs = job_verbs());

}  // namespace distilld::cli
