#include "server/worker/ranks/rank_run.hpp"

#include <algorithm>
#include <boost/json/object.hpp>
#include <cstdint>
#include <utility>

#include "base/json_text.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"
#include "server/worker/resume_identity.hpp"
#include "server/worker/run_plan.hpp"

namespace distilld {

namespace json = boost::json;

Result<void> check_ranks(const RankExchange* ranks, const JobSpec& spec) {
    const std::uint32_t count = ranks == nullptr ? 1 : ranks->count();
    const std::optional<RankConflict> conflict = conflict_of_ranks(spec.student, spec.training, count);
    return conflict ? invalid_input(std::string(conflict->pointer) + ": " + conflict->why) : Result<void>();
}

std::string words_to_ranks(const PreparedRun& run) {
    return to_text(json::object{{"identity", identity_of(run)},
                                {"resumed_from", run.resumed_from},
                                {"shard_optimizer", run.spec.training.shard_optimizer}});
}

Result<std::string> read_words_to_ranks(const std::string& words, PreparedRun& run) {
    const auto value = parse_json_text(words, 4);
    const json::object* told = value ? value->if_object() : nullptr;
    const json::value* identity = told != nullptr ? told->if_contains("identity") : nullptr;
    const json::value* checkpoint = told != nullptr ? told->if_contains("resumed_from") : nullptr;
    const json::value* shard = told != nullptr ? told->if_contains("shard_optimizer") : nullptr;
    if (identity == nullptr || !identity->is_string() || checkpoint == nullptr || !checkpoint->is_string() ||
        shard == nullptr || !shard->is_bool()) {
        return Error{ErrorKind::internal, "rank 0 did not say what run this is"};
    }
    run.resumed_from = checkpoint->get_string();
    run.spec.training.shard_optimizer = shard->get_bool();
    std::string of_run(identity->get_string());
    adopt_decisions(of_run, run.spec);
    run.spec.dataset.overflow = effective_overflow(run.spec.dataset);
    return of_run;
}

std::optional<StepSlice> own_slice(const PreparedRun& run) {
    if (run.ranks == nullptr) {
        return std::nullopt;
    }
    return slice_of_rank(run.spec.training.micro_batches, run.ranks->rank(), run.ranks->count());
}

void share_teachers(const RankExchange* ranks, std::vector<GraphTeacher>& teachers) {
    const std::uint32_t count = ranks == nullptr ? 1 : ranks->count();
    for (GraphTeacher& teacher : teachers) {
        SchedulerOptions& scheduler = teacher.options.scheduler;
        scheduler.limit.ceiling = std::max(1U, scheduler.limit.ceiling / count);
        scheduler.limit.initial = std::min(scheduler.limit.initial, scheduler.limit.ceiling);
        if (scheduler.window.max_bytes > 0) {  // else there is no limit
            scheduler.window.max_bytes = std::max<std::uint64_t>(1, scheduler.window.max_bytes / count);
        }
    }
}

}  // namespace distilld
