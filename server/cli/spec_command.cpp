#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <filesystem>
#include <map>

#include "api/job_spec_json.hpp"
#include "api/spec_comments.hpp"
#include "api/spec_explain.hpp"
#include "api/spec_overrides.hpp"
#include "api/spec_paths.hpp"
#include "base/files/files.hpp"
#include "base/json_text.hpp"
#include "server/cli/commands.hpp"
#include "server/estimate/job_estimate.hpp"
#include "server/jobs/checks/named_files_check.hpp"

namespace distilld::cli {
namespace {

namespace json = boost::json;

int fail(const std::string& message) {
    std::fprintf(stderr, "distilld spec: %s\n", message.c_str());
    return kWrongUsage;
}

/// Checks the spec itself, then whether what it names exists.
api::SpecViolations violations_of(const api::ParsedSpec& spec) {
    return spec ? check_named_files(*spec, LookInside::yes) : spec.error();
}

Result<std::string> with_sets(std::string text, const std::vector<std::string>& sets) {
    const auto overrides = parse_sets(sets);
    if (!overrides) {
        return overrides.error();
    }
    return overrides->empty() ? Result<std::string>(std::move(text)) : api::apply_overrides(text, *overrides);
}

int check(const SpecCommand& command) {
    auto text = read_spec_text(command.subject);
    if (text) {
        text = with_sets(std::move(*text), command.sets);
    }
    if (!text) {
        return fail(text.error().message);
    }
    auto spec = api::parse_job_spec(*text);
    api::SpecViolations found = violations_of(spec);
    std::vector<std::string> not_checked;
    if (found.violations.empty()) {
        api::make_paths_absolute(*spec, std::filesystem::current_path());
        JudgedJob judged = judge_job(*spec);
        found.violations = std::move(judged.violations);
        not_checked = std::move(judged.not_checked);
    }
    const bool good = found.violations.empty();
    if (command.json) {
        json::array violations;
        for (const auto& one : found.violations) {
            violations.push_back(json::object{{"pointer", one.pointer}, {"code", one.code}, {"detail", one.detail}});
        }
        print(to_text(json::object{{"valid", good},
                                   {"violations", std::move(violations)},
                                   {"not_checked", json::array(not_checked.begin(), not_checked.end())}}) +
              "\n");
    } else if (good) {
        print(command.subject + ": nothing is wrong\n");
        for (const std::string& what : not_checked) {
            print("not checked: " + what + "\n");
        }
    } else {
        std::fprintf(stderr, "%s\n", api::describe(found).c_str());
    }
    return good ? kDone : kWrongUsage;
}

int explain(const SpecCommand& command) {
    const auto text = api::explain(api::spec_table(), command.subject);
    if (!text) {
        return fail(text.error().message);
    }
    print(*text);
    return kDone;
}

/// The student's number of positions, unless that is too many for a start.
std::uint64_t sequence_length_of(const std::string& model) {
    constexpr std::uint64_t kEnough = 512;
    constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{1} << 20U;
    const auto text = read_text_file(std::filesystem::path(model) / "config.json", kMaxConfigBytes);
    boost::system::error_code failed;
    const auto config = text ? json::parse(*text, failed) : json::value();
    const auto* object = config.if_object();
    const auto* positions = object != nullptr ? object->if_contains("max_position_embeddings") : nullptr;
    const bool known = positions != nullptr && positions->is_int64() && positions->get_int64() > 0;
    return known ? std::min<std::uint64_t>(kEnough, static_cast<std::uint64_t>(positions->get_int64())) : kEnough;
}

int init(const SpecCommand& command) {
    std::map<std::string, json::value> values{
        {"/name", "first-job"},
        {"/student/model", json::string(command.model)},
        {"/dataset/train", json::string(command.data)},
        {"/dataset/sequence_length", sequence_length_of(command.model)},
        {"/training/batch_size", "auto"},
        {"/training/micro_batches", "auto"},
        {"/training/epochs", 1},
        {"/training/learning_rate", 1e-4},
        {"/training/warmup_ratio", 0.05},
        {"/output", json::string(command.output)},
    };
    if (!command.eval.empty()) {
        values["/dataset/eval"] = json::string(command.eval);
    }
    if (!command.endpoints.empty()) {
        values["/teacher/endpoints"] = json::array(command.endpoints.begin(), command.endpoints.end());
        values["/teacher/protocol"] = "auto";
        values["/teacher/top_k"] = 64;
    }
    const auto text = api::starting_spec(api::spec_table(), values);
    // Its inputs may be wrong.
    if (const auto found = violations_of(api::parse_job_spec(api::without_comments(text))); !found.violations.empty()) {
        return fail("these flags do not make a valid spec:\n" + api::describe(found));
    }
    print(text);
    return kDone;
}

}  // namespace

int execute(const SpecCommand& command) {
    switch (command.action) {
        case SpecCommand::Action::init:
            return init(command);
        case SpecCommand::Action::check:
            return check(command);
        case SpecCommand::Action::explain:
            return explain(command);
    }
    return kWrongUsage;
}

}  // namespace distilld::cli
