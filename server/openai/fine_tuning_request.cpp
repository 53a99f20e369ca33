#include "server/openai/fine_tuning_request.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "api/kinds/object_fields.hpp"
#include "base/json_text.hpp"
#include "server/jobs/job_patch.hpp"

namespace distilld::openai {
namespace {

namespace json = boost::json;

constexpr const char* kDistillation = "/method/distillation";

std::vector<api::ObjectField<FineTuningRequest>> request_fields() {
    using Asked = FineTuningRequest;
    return {{"model", api::make_text(&Asked::model, {.max_bytes = 256}), true},
            {"training_file", api::make_text(&Asked::training_file, {.max_bytes = 256}), true},
            {"validation_file", api::make_text(&Asked::validation_file, {.max_bytes = 256})},
            {"suffix", api::make_text(&Asked::suffix, {.max_bytes = 64})},
            {"metadata", api::make_field(metadata_kind(false), &Asked::metadata)}};
}

/// A member that maps to a field of the spec.
struct Alias {
    const char* member;
    const char* section;
    const char* field;
};
constexpr std::array kHyperparameters{Alias{"n_epochs", "training", "epochs"},
                                      Alias{"batch_size", "training", "batch_size"}};

class Reader {
  public:
    /// Clients send null for members that they leave out.
    explicit Reader(json::object body) : body_(std::move(body)) {
        for (auto member = body_.begin(); member != body_.end();) {
            member = member->value().is_null() ? body_.stable_erase(member) : member + 1;
        }
    }

    ParsedFineTuningRequest read() {
        api::read_fields(body_, request_fields(), request_, violations_.violations,
                         {"seed", "method", "hyperparameters", "integrations"});
        if (request_.metadata.size() > kMetadataPairs) {
            violate("/metadata", "out_of_range", "at most " + std::to_string(kMetadataPairs) + " pairs are kept");
        }
        if (const auto* integrations = body_.if_contains("integrations");
            integrations != nullptr && !(integrations->is_array() && integrations->get_array().empty())) {
            violate("/integrations", "unsupported", "not supported; set metrics in the spec of method.distillation");
        }
        if (read_method()) {
            fill_spec();
        }
        if (!violations_.violations.empty()) {
            return std::move(violations_);
        }
        return std::move(request_);
    }

  private:
    void violate(std::string pointer, std::string code, std::string detail) {
        violations_.violations.push_back({std::move(pointer), std::move(code), std::move(detail)});
    }

    /// Null: absent or null, which clients send for members that they leave out.
    static const json::value* given(const json::object& object, std::string_view name) {
        const auto* value = object.if_contains(name);
        return value == nullptr || value->is_null() ? nullptr : value;
    }

    bool read_method() {
        const auto* value = body_.if_contains("method");
        if (value == nullptr || !value->is_object()) {
            violate(
                "/method", value == nullptr ? "required" : "wrong_type",
                R"(an object is expected: {"type": "distillation", "distillation": {student, teacher, training, …}})");
            return false;
        }
        const auto& method = value->get_object();
        const auto* type = given(method, "type");
        if (type == nullptr || !type->is_string() || type->get_string() != "distillation") {
            violate("/method/type", type == nullptr ? "required" : "unsupported", "must be \"distillation\"");
        }
        api::refuse_unknown(method, "/method", {"type", "distillation"}, violations_.violations);
        const auto* distillation = given(method, "distillation");
        if (distillation == nullptr || !distillation->is_object()) {
            violate(kDistillation, distillation == nullptr ? "required" : "wrong_type",
                    "an object is expected: the student, teacher, training and dataset of a job spec");
            return false;
        }
        request_.spec = distillation->get_object();
        return true;
    }

    /// The section of the spec, created if missing. Null: not an object, which the spec's parser reports.
    json::object* section(const char* name) {
        auto& value = request_.spec[name];
        if (value.is_null()) {
            value.emplace_object();
        }
        return value.if_object();
    }

    /// A value outside `method` must not also appear inside it.
    void put(const char* section_name, const char* field, const std::string& place, json::value value) {
        auto* object = section_name == nullptr ? &request_.spec : section(section_name);
        if (object == nullptr) {
            return;
        }
        const auto pointer = (section_name == nullptr ? std::string() : "/" + std::string(section_name)) + "/" + field;
        if (object->contains(field)) {
            violate(kDistillation + pointer, "conflict", "is given as " + place + " too: give one of them");
            return;
        }
        (*object)[field] = std::move(value);
        request_.places.emplace(pointer, place);
    }

    void refuse_ours(const json::object& object, const char* name, const std::string& pointer, const char* detail) {
        if (object.contains(name)) {
            violate(kDistillation + pointer, "conflict", detail);
        }
    }

    void fill_spec() {
        refuse_ours(request_.spec, "output", "/output", "the service chooses the folder: leave it out");
        refuse_ours(request_.spec, "kind", "/kind", "a fine-tuning job trains: leave it out");
        if (const auto* dataset = section("dataset"); dataset != nullptr) {
            refuse_ours(*dataset, "train", "/dataset/train", "given by training_file: leave it out");
            if (!request_.validation_file.empty()) {
                refuse_ours(*dataset, "eval", "/dataset/eval", "given by validation_file: leave it out");
            }
        }
        request_.places.emplace("/dataset/train", "/training_file");
        if (!request_.validation_file.empty()) {
            request_.places.emplace("/dataset/eval", "/validation_file");
        }
        if (!request_.suffix.empty()) {
            put(nullptr, "name", "/suffix", json::string(request_.suffix));
        }
        if (const auto* seed = body_.if_contains("seed")) {
            put("training", "seed", "/seed", *seed);
        }
        fill_student();
        fill_hyperparameters();
    }

    void fill_student() {
        auto* student = section("student");
        if (student == nullptr || student->contains("model") || student->contains("config")) {
            return;  // the student is complete, and `model` is only the client's name for it
        }
        if (request_.model == kScratch) {
            violate(kDistillation + std::string("/student/config"), "required",
                    "a student from scratch needs a config, or a model that has one");
            return;
        }
        (*student)["model"] = request_.model;
        request_.places.emplace("/student/model", "/model");
    }

    void fill_hyperparameters() {
        const auto* value = body_.if_contains("hyperparameters");
        if (value == nullptr) {
            return;
        }
        if (!value->is_object()) {
            api::FieldReport{"/hyperparameters", violations_.violations}.wrong_type("an object", *value);
            return;
        }
        const auto& parameters = value->get_object();
        api::refuse_unknown(parameters, "/hyperparameters", {"n_epochs", "batch_size", "learning_rate_multiplier"},
                            violations_.violations);
        const auto says = [&](const char* name) {
            const auto* parameter = given(parameters, name);
            const bool automatic = parameter != nullptr && parameter->is_string() && parameter->get_string() == "auto";
            return automatic ? nullptr : parameter;
        };
        for (const auto& alias : kHyperparameters) {
            if (const auto* parameter = says(alias.member)) {
                put(alias.section, alias.field, "/hyperparameters/" + std::string(alias.member), *parameter);
            }
        }
        if (says("learning_rate_multiplier") != nullptr) {
            violate("/hyperparameters/learning_rate_multiplier", "unsupported",
                    "there is no learning rate to multiply: give method.distillation.training.learning_rate");
        }
    }

    json::object body_;
    FineTuningRequest request_;
    api::SpecViolations violations_;
};

}  // namespace

ParsedFineTuningRequest parse_fine_tuning_request(std::string_view text) {
    api::SpecViolations wrong;
    auto body = api::read_object(text, "the request", api::kSpecSizeLimit, api::kSpecDepthLimit, wrong.violations);
    if (!wrong.violations.empty()) {
        return wrong;
    }
    return Reader(*std::move(body)).read();
}

std::string spec_of(const FineTuningRequest& request, const std::filesystem::path& training,
                    const std::filesystem::path& validation, const std::filesystem::path& output) {
    auto spec = request.spec;
    if (auto* dataset = spec["dataset"].if_object()) {
        (*dataset)["train"] = training.string();
        if (!validation.empty()) {
            (*dataset)["eval"] = validation.string();
        }
    }
    spec["output"] = output.string();
    return to_text(spec);
}

api::SpecViolations in_terms_of(const FineTuningRequest& request, api::SpecViolations violations) {
    for (auto& violation : violations.violations) {
        const auto place = std::ranges::find_if(request.places, [&](const auto& known) {
            return violation.pointer == known.first || violation.pointer.starts_with(known.first + "/");
        });
        if (place == request.places.end()) {
            violation.pointer.insert(0, kDistillation);
        } else {
            violation.pointer.replace(0, place->first.size(), place->second);
        }
    }
    return violations;
}

}  // namespace distilld::openai
