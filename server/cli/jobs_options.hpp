#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/cli/connection_options.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// What `distilld jobs` is to do.
struct JobsCommand {
    enum class Action {
        submit,
        list,
        get,
        watch,
        cancel,
        pause,
        resume,
        checkpoint,
        set,
        remove,
        checkpoints,
        metrics,
        logs,
        download
    };
    Action action = Action::list;
    std::string subject;  ///< spec file (submit); else a job: id, beginning of one, or name
    ConnectionOptions connection;
    bool json = false;
    bool wide = false;  ///< list: more columns

    bool dry_run = false;  ///< submit: check the spec and say what the job would come to

    std::uint32_t limit = 20;           ///< list
    std::string state;                  ///< list; empty = any
    std::string name;                   ///< list; empty = any
    std::vector<std::string> metadata;  ///< list, set: NAME=TEXT each

    std::optional<std::int32_t> priority;         ///< submit, set
    std::optional<std::uint32_t> max_concurrent;  ///< set
    bool checkpoint_at_end = true;                ///< cancel

    std::string names;               ///< metrics: with commas between them; empty = all
    std::uint64_t after_step = 0;    ///< metrics, where `from_step` is set
    bool from_step = false;          ///< metrics: only those behind after_step
    std::uint32_t max_points = 500;  ///< metrics

    std::uint32_t tail = 1000;  ///< logs: lines
    bool follow = false;        ///< logs: go on until the job has ended

    std::string to;   ///< download: folder; empty = one of the job's id
    std::string tar;  ///< download: file in place of a folder; empty = none
};

/// The subcommands of `jobs`, which tell `version` when they are asked.
void add_jobs_options(CLI::App& jobs, JobsCommand& command, const std::string& version);

}  // namespace distilld::cli
