#include "server/openai/openai_objects.hpp"

#include <boost/json/array.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/ascii.hpp"
#include "base/json_text.hpp"
#include "base/unix_time.hpp"
#include "server/openai/fine_tuning_request.hpp"

namespace distilld::openai {
namespace {

namespace json = boost::json;

constexpr std::string_view kOwner = "distilld";
constexpr std::string_view kEventPrefix = "ftevent-";
constexpr std::size_t kDepth = 64;

json::object object_of(const std::string& text) {
    auto value = parse_json_text(text, kDepth);
    return value && value->is_object() ? std::move(value->get_object()) : json::object();
}

/// Null if something on the path is missing.
const json::value* find(const json::object& object, std::initializer_list<std::string_view> path) {
    const json::value* value = nullptr;
    const json::object* place = &object;
    for (const auto name : path) {
        value = place == nullptr ? nullptr : place->if_contains(name);
        place = value == nullptr ? nullptr : value->if_object();
    }
    return value;
}

json::value copy_of(const json::object& object, std::initializer_list<std::string_view> path) {
    const auto* value = find(object, path);
    return value == nullptr ? json::value(nullptr) : *value;
}

std::string text_of(const json::object& object, std::initializer_list<std::string_view> path) {
    const auto* value = find(object, path);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

/// A text, or the first of a list of texts.
json::value first_of(const json::value* value, json::value otherwise) {
    if (value != nullptr && value->is_array() && !value->get_array().empty()) {
        value = &value->get_array().front();
    }
    return value != nullptr && value->is_string() ? *value : std::move(otherwise);
}

json::value time_or_null(const std::string& text) {
    const auto time = unix_time_of(text);
    return time ? json::value(*time) : json::value(nullptr);
}

/// The last component of the student's folder.
std::string base_model(const json::object& spec) {
    std::filesystem::path folder = text_of(spec, {"student", "model"});
    if (!folder.has_filename()) {
        folder = folder.parent_path();
    }
    return folder.empty() ? std::string(kScratch) : folder.filename().string();
}

/// Replaces characters that a model's name may not have between its colons.
std::string word_of(std::string text) {
    for (auto& c : text) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
                           c == '_' || c == '.';
        c = plain ? c : '-';
    }
    return text;
}

/// The request that created the job, or an equivalent one.
json::object asked_of(const api::Job& job, const json::object& spec) {
    if (!job.asked_json.empty()) {
        return object_of(job.asked_json);
    }
    auto sections = spec;
    for (const auto* ours : {"output", "kind", "name"}) {
        sections.erase(ours);
    }
    json::object asked{{"model", base_model(spec)}};
    asked["method"] = json::object{{"type", "distillation"}, {"distillation", std::move(sections)}};
    return asked;
}

/// OpenAI's members hold a number or "auto"; clients need the object to be present.
json::object hyperparameters_of(const json::object& resolved) {
    const auto number_or_auto = [&](std::string_view name) {
        auto value = copy_of(resolved, {"training", name});
        return value.is_number() ? value : json::value("auto");
    };
    return {{"n_epochs", number_or_auto("epochs")},
            {"batch_size", number_or_auto("batch_size")},
            {"learning_rate_multiplier", "auto"}};
}

json::value estimated_finish(const api::Job& job) {
    if (job.state != api::JobState::running || !job.progress || !std::isfinite(job.progress->seconds_remaining) ||
        job.progress->step == 0) {
        return nullptr;
    }
    return static_cast<std::int64_t>(unix_now() + job.progress->seconds_remaining);
}

json::value error_of(const api::Job& job) {
    if (job.state != api::JobState::failed || !job.status_reason) {
        return nullptr;
    }
    return json::object{{"code", job.status_reason->code}, {"message", job.status_reason->message}, {"param", nullptr}};
}

json::value trained_tokens(const api::Job& job) {
    return api::is_terminal(job.state) && job.progress ? json::value(job.progress->tokens) : json::value(nullptr);
}

}  // namespace

std::optional<std::int64_t> unix_time_of(const std::string& text) {
    const auto time = api::parse_rfc3339(text);
    if (!time) {
        return std::nullopt;
    }
    return std::chrono::floor<std::chrono::seconds>(*time).time_since_epoch().count();
}

json::object file_object(const UploadedFile& file) {
    return {{"id", file.id},
            {"object", "file"},
            {"bytes", file.bytes},
            {"created_at", file.created_at},
            {"filename", file.filename},
            {"purpose", file.purpose},
            {"status", "processed"},
            {"expires_at", nullptr}};
}

json::object file_object(const ExportedFile& file, std::int64_t created_at) {
    return file_object(UploadedFile{file.id, file.name, "fine-tune-results", file.bytes, created_at});
}

std::string_view fine_tuning_status(api::JobState state) {
    return api::to_string(state == api::JobState::pausing ? api::JobState::paused : state);
}

std::string model_name(const api::Job& job) {
    const auto spec = object_of(job.spec_json);
    const auto name = spec.contains("name") ? job.name : base_model(spec);
    return std::string(kOwner) + ":" + word_of(name) + ":" + job.id;
}

std::optional<std::string> job_of_model(std::string_view name) {
    const auto colon = name.rfind(':');
    if (!name.starts_with(std::string(kOwner) + ":") || colon == std::string_view::npos || colon + 1 == name.size()) {
        return std::nullopt;
    }
    return std::string(name.substr(colon + 1));
}

json::object model_object(const api::Job& job) {
    return {{"id", model_name(job)},
            {"object", "model"},
            {"created", time_or_null(job.finished_at)},
            {"owned_by", job.owner.empty() ? std::string(kOwner) : job.owner}};
}

json::object fine_tuning_job(const api::Job& job, const std::vector<ExportedFile>& results) {
    const auto spec = object_of(job.spec_json);
    const auto resolved = object_of(job.resolved_spec_json);
    auto asked = asked_of(job, spec);
    const bool made = job.state == api::JobState::succeeded && job.kind == JobKind::train;
    json::array files;
    for (const auto& file : results) {
        files.emplace_back(file.id);
    }
    json::object metadata;
    for (const auto& [key, text] : job.metadata) {
        metadata[key] = text;
    }
    const auto member = [&](const char* name) { return copy_of(asked, {name}); };
    auto seed = copy_of(resolved, {"training", "seed"});
    json::object object{{"id", job.id}, {"object", "fine_tuning.job"}};
    object["model"] = member("model");
    object["created_at"] = time_or_null(job.created_at);
    object["finished_at"] = time_or_null(job.finished_at);
    object["fine_tuned_model"] = made ? json::value(model_name(job)) : json::value(nullptr);
    object["organization_id"] = job.owner.empty() ? std::string(kOwner) : job.owner;
    object["status"] = fine_tuning_status(job.state);
    object["training_file"] = asked.contains("training_file") ? member("training_file") : json::value("");
    object["validation_file"] = member("validation_file");
    if (!asked.contains("training_file")) {  // the job was created from a spec: use its paths as the files
        object["training_file"] = first_of(find(resolved, {"dataset", "train"}), "");
        object["validation_file"] = first_of(find(resolved, {"dataset", "eval"}), nullptr);
    }
    object["result_files"] = std::move(files);
    object["trained_tokens"] = trained_tokens(job);
    object["estimated_finish"] = estimated_finish(job);
    object["error"] = error_of(job);
    object["hyperparameters"] = hyperparameters_of(resolved);
    object["method"] = member("method");
    object["seed"] = seed.is_number() ? std::move(seed) : json::value(0);
    object["integrations"] = json::array();
    object["metadata"] = std::move(metadata);
    object["user_provided_suffix"] = member("suffix");
    return object;
}

std::string event_id(const std::string& job_id, std::uint64_t sequence) {
    return std::string(kEventPrefix) + job_id + "-" + std::to_string(sequence);
}

std::optional<std::uint64_t> sequence_of_event(const std::string& job_id, std::string_view event_id) {
    const auto prefix = std::string(kEventPrefix) + job_id + "-";
    return event_id.starts_with(prefix) ? number_from<std::uint64_t>(event_id.substr(prefix.size())) : std::nullopt;
}

json::object fine_tuning_event(const std::string& job_id, const api::JobEvent& event) {
    const bool metrics = event.type == api::EventType::metrics;
    return {{"id", event_id(job_id, event.sequence)},
            {"object", "fine_tuning.job.event"},
            {"created_at", time_or_null(event.created_at)},
            {"level", event.level},
            {"message", event.message},
            {"type", metrics ? "metrics" : "message"},
            {"data", event.data}};
}

std::string checkpoint_id(const std::string& job_id, const api::JobCheckpoint& checkpoint) {
    return "ftckpt-" + job_id + "-" + std::to_string(checkpoint.step);
}

json::object fine_tuning_checkpoint(const api::Job& job, const api::JobCheckpoint& checkpoint,
                                    const CheckpointLosses& losses) {
    json::object metrics{{"step", checkpoint.step}};
    if (losses.train_loss) {
        metrics["train_loss"] = *losses.train_loss;
    }
    if (losses.valid_loss) {
        metrics["full_valid_loss"] = *losses.valid_loss;
    }
    return {{"id", checkpoint_id(job.id, checkpoint)},
            {"object", "fine_tuning.job.checkpoint"},
            {"created_at", time_or_null(checkpoint.created_at)},
            {"fine_tuned_model_checkpoint", model_name(job) + ":ckpt-step-" + std::to_string(checkpoint.step)},
            {"fine_tuning_job_id", job.id},
            {"metrics", std::move(metrics)},
            {"step_number", checkpoint.step}};
}

json::object list_object(json::array data, bool has_more) {
    json::object list{{"object", "list"}, {"first_id", nullptr}, {"last_id", nullptr}, {"has_more", has_more}};
    if (!data.empty()) {
        list["first_id"] = data.front().at("id");
        list["last_id"] = data.back().at("id");
    }
    list["data"] = std::move(data);
    return list;
}

}  // namespace distilld::openai
