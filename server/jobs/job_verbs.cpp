#include "server/jobs/job_verbs.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "server/jobs/table/job_table.hpp"

namespace distilld {
namespace {

using Time = JobTable::Time;

/// A queued or paused job is cancelled at once, a running one when its worker has ended.
JobVerdict cancel(JobTable& table, const std::string& id, bool with_checkpoint, Time now) {
    const auto last = with_checkpoint ? LastCheckpoint::write : LastCheckpoint::skip;
    return table.cancel(id, now, last) ? JobVerdict::accepted : JobVerdict::not_found;
}

JobVerdict pause(JobTable& table, const std::string& id, bool, Time now) {
    return table.pause(id, now);
}

JobVerdict resume(JobTable& table, const std::string& id, bool, Time) {
    return table.resume(id);
}

JobVerdict checkpoint(JobTable& table, const std::string& id, bool, Time) {
    return table.tell(id, CheckpointCommand{}, "checkpoint requested");
}

constexpr std::array kVerbs{
    JobVerb{.name = "cancel",
            .help = "Cancel a job; a running one writes a checkpoint first",
            .ask = cancel,
            .option = "checkpoint",
            .option_off = "--no-checkpoint",
            .option_help = "end without the last checkpoint"},
    JobVerb{.name = "pause", .help = "Pause a job; a running one writes a checkpoint first", .ask = pause},
    JobVerb{.name = "resume",
            .help = "Continue a paused, failed or cancelled job from its newest checkpoint",
            .ask = resume,
            .revives = true},
    JobVerb{.name = "checkpoint",
            .help = "Make a running job write a checkpoint and continue",
            .ask = checkpoint,
            .ended = JobVerdict::not_running,
            .needs_checkpoints = true},
};

}  // namespace

std::span<const JobVerb> job_verbs() {
    return kVerbs;
}

const JobVerb& job_verb(std::string_view name) {
    const auto* found = std::ranges::find(kVerbs, name, &JobVerb::name);
    if (found == kVerbs.end()) {
        throw std::invalid_argument("there is no verb " + std::string(name));
    }
    return *found;
}

}  // namespace distilld
