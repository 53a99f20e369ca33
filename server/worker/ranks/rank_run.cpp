#include "server/worker/ranks/rank_run.hpp"

#include <algorithm>
#include <boost/describe/class.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/json_fields.hpp"
#include "base/json_text.hpp"
#include "base/this_machine.hpp"
#include "pipeline/core/effective_overflow.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"
#include "server/worker/resume_identity.hpp"
#include "server/worker/run_plan.hpp"

namespace distilld {

namespace asio = boost::asio;
namespace json = boost::json;

namespace {

/// What the first rank of a host tells the others.
struct TeacherPlaces {
    std::map<std::string, teacher::HostTeacherPlace> teachers;
};
BOOST_DESCRIBE_STRUCT(TeacherPlaces, (), (teachers))

/// One rank of the host loads the teacher for all of them.
bool is_shared_on_host(const PreparedRun& run, const TeacherSpec& teacher) {
    return run.host_ranks.size() > 1 && !teacher.model_dir.empty() && computes_for_all_ranks(teacher);
}

/// The spec of a teacher that another rank of this host has loaded.
TeacherSpec asked_on_host(TeacherSpec teacher, const teacher::HostTeacherPlace& place) {
    teacher.model_dir.clear();
    teacher.endpoints = {"http://127.0.0.1:" + std::to_string(place.port)};
    teacher.protocol = kDefaultTeacherProtocol;  // what a HostTeacher speaks
    teacher.model = teacher::TeacherServiceOptions().model_name;
    teacher.timeout_secs = std::chrono::duration<double>(models::kLocalDeadline).count();
    teacher.hedge = false;
    return teacher;
}

}  // namespace

Result<void> check_ranks(const RankExchange* ranks, const JobSpec& spec) {
    const std::uint32_t count = ranks == nullptr ? 1 : ranks->count();
    const std::optional<RankConflict> conflict = conflict_of_ranks(spec.student, spec.training, count);
    return conflict ? invalid_input(std::string(conflict->pointer) + ": " + conflict->why) : Result<void>();
}

std::string words_to_ranks(const PreparedRun& run) {
    return to_text(json::object{{"identity", identity_of(run)},
                                {"resumed_from", run.resumed_from},
                                {"holder", run.fences.empty() ? std::string() : run.fences.front().holder()},
                                {"shard_optimizer", run.spec.training.shard_optimizer}});
}

Result<std::string> read_words_to_ranks(const std::string& words, PreparedRun& run) {
    const auto value = parse_json_text(words, 4);
    const json::object* told = value ? value->if_object() : nullptr;
    const json::value* identity = told != nullptr ? told->if_contains("identity") : nullptr;
    const json::value* checkpoint = told != nullptr ? told->if_contains("resumed_from") : nullptr;
    const json::value* shard = told != nullptr ? told->if_contains("shard_optimizer") : nullptr;
    const json::value* holder = told != nullptr ? told->if_contains("holder") : nullptr;
    if (identity == nullptr || !identity->is_string() || checkpoint == nullptr || !checkpoint->is_string() ||
        shard == nullptr || !shard->is_bool() || holder == nullptr || !holder->is_string()) {
        return Error{ErrorKind::internal, "rank 0 did not say what run this is"};
    }
    run.resumed_from = checkpoint->get_string();
    run.spec.training.shard_optimizer = shard->get_bool();
    if (const std::string name(holder->get_string()); !name.empty()) {
        run.fences.push_back(FolderFence::held_by(run.spec.output, run.attempt, name));
    }
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

void share_teachers(const PreparedRun& run, std::vector<GraphTeacher>& teachers) {
    const std::uint32_t count = run.ranks == nullptr ? 1 : run.ranks->count();
    for (GraphTeacher& teacher : teachers) {
        SchedulerOptions& scheduler = teacher.options.scheduler;
        if (local_model_of(run.spec.teachers.at(teacher.name)).empty()) {
            scheduler.limit.ceiling = share_of(scheduler.limit.ceiling, count);
            teacher.options.sharers = count;
        }
        scheduler.limit.initial = std::min(scheduler.limit.initial, scheduler.limit.ceiling);
        if (scheduler.window.max_bytes > 0) {  // else there is no limit
            scheduler.window.max_bytes = std::max<std::uint64_t>(1, scheduler.window.max_bytes / count);
        }
    }
}

void find_host_ranks(PreparedRun& run) {
    const std::vector<std::string> hosts = run.ranks->gather(loopback_id());
    const std::string& mine = hosts.at(run.ranks->rank());
    run.host_ranks.clear();
    for (std::uint32_t rank = 0; rank < hosts.size(); ++rank) {
        if (rank == run.ranks->rank() || (!mine.empty() && hosts[rank] == mine)) {
            run.host_ranks.push_back(rank);
        }
    }
}

Result<void> share_on_host(PreparedRun& run, TeachersWish& wish, const GraphExecutors& executors) {
    for (auto& [name, spec] : wish.specs) {
        if (!is_shared_on_host(run, spec)) {
            continue;
        }
        if (run.leads_host()) {
            auto host = std::make_unique<teacher::HostTeacher>(executors.io, executors.decoding());
            wish.for_host[name] = host->keeping(wish.local);
            run.host_teachers[name] = std::move(host);
            continue;
        }
        const auto place = run.teacher_places.find(name);
        if (place == run.teacher_places.end()) {
            return Error{ErrorKind::internal, "rank " + std::to_string(run.host_ranks.front()) +
                                                  " has not loaded the teacher " + spec.model_dir};
        }
        wish.bearers[name] = place->second.key;
        spec = asked_on_host(std::move(spec), place->second);
    }
    return {};
}

Result<void> serve_host(PreparedRun& run) {
    for (auto& [name, host] : run.host_teachers) {
        Result<teacher::HostTeacherPlace> place = host->serve();
        if (!place) {
            return place.error();
        }
        run.teacher_places[name] = std::move(*place);
    }
    return {};
}

Result<void> exchange_teacher_places(PreparedRun& run) {
    const TeacherPlaces mine{run.teacher_places};
    const std::vector<std::string> all = run.ranks->gather(to_text(write_fields(mine)));
    const auto value = parse_json_text(all.at(run.host_ranks.front()), 4);
    const json::object* told = value ? value->if_object() : nullptr;
    TeacherPlaces places;
    if (told == nullptr || !read_fields(*told, places)) {
        return Error{ErrorKind::internal, "the first rank of this host did not say where its teachers are"};
    }
    run.teacher_places = std::move(places.teachers);
    return {};
}

asio::awaitable<void> end_host_teachers(PreparedRun& run) {
    for (auto& [name, host] : run.host_teachers) {
        co_await host->end();
    }
}

}  // namespace distilld
